// A node's kubelet as the Kubernetes API server sees it, as far as port-forwards
// go: TLS with the API server's client certificate, the kubelet's own streaming
// package behind the kubelet's path, and sockets on this machine as the pods'.
//
// Which pods there are, and at which address their loopback is, stands in a
// file that is read at every request, one "NAMESPACE/POD ADDRESS" a line.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

const (
	// The kubelet's own defaults: a port-forward without traffic ends after the first.
	idleTimeout     = 4 * time.Hour
	creationTimeout = 30 * time.Second
)

// node forwards to the pods named in a file.
type node struct {
	pods string
}

// find returns where the loopback of a pod is.
func (n node) find(pod string) (string, bool) {
	text, err := os.ReadFile(n.pods)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == pod {
			return words[1], true
		}
	}
	return "", false
}

// PortForward copies between a stream and a port of a pod until both ends are done.
func (n node) PortForward(ctx context.Context, pod string, _ string, port int32, stream io.ReadWriteCloser) error {
	address, ok := n.find(pod)
	if !ok {
		return fmt.Errorf("pod %s not found", pod)
	}
	target := net.JoinHostPort(address, strconv.Itoa(int(port)))
	log.Printf("forward %s to %s", pod, target)
	far, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", target)
	if err != nil {
		return fmt.Errorf("failed to connect to port %d of pod %s: %w", port, pod, err)
	}
	defer far.Close()
	up, down := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(up)
		io.Copy(far, stream)
		far.(*net.TCPConn).CloseWrite()
	}()
	go func() {
		defer close(down)
		io.Copy(stream, far)
		stream.Close()
	}()
	// As the runtimes do it: a pod that closes ends the forward, a client that closes its
	// half still gets what the pod has to say.
	select {
	case <-down:
	case <-up:
		<-down
	}
	log.Printf("end of forward %s to %s", pod, target)
	return nil
}

// serve answers /portForward/NAMESPACE/POD[/UID].
func (n node) serve(w http.ResponseWriter, r *http.Request) {
	pod := r.PathValue("namespace") + "/" + r.PathValue("pod")
	log.Printf("%s %s %s", r.Method, r.URL, r.Header.Get("Upgrade"))
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, ok := n.find(pod); !ok {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	portforward.ServePortForward(w, r, n, pod, r.PathValue("uid"), options,
		idleTimeout, creationTimeout, portforward.SupportedProtocols)
}

func main() {
	listen := flag.String("listen", "127.0.0.1:10250", "address to listen on")
	cert := flag.String("cert", "", "file with the node's certificate")
	key := flag.String("key", "", "file with its key")
	clientCA := flag.String("client-ca", "", "file with the authority of the API server's client certificate")
	pods := flag.String("pods", "", "file with the pods of this node")
	flag.Parse()

	authority, err := os.ReadFile(*clientCA)
	if err != nil {
		log.Fatal(err)
	}
	callers := x509.NewCertPool()
	if !callers.AppendCertsFromPEM(authority) {
		log.Fatalf("%s: no certificate", *clientCA)
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"} {
		mux.HandleFunc(path, node{*pods}.serve)
	}
	server := http.Server{
		Addr:    *listen,
		Handler: mux,
		// Streams are upgrades, which HTTP/2 has none of.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig:    &tls.Config{ClientCAs: callers, ClientAuth: tls.RequireAndVerifyClientCert},
	}
	log.Printf("listening on %s", *listen)
	log.Fatal(server.ListenAndServeTLS(*cert, *key))
}

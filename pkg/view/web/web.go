// Package web serves the node map: a page for a browser that shows the status and changes
// nothing.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"time"

	"golang.org/x/net/netutil"

	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// Options say where to serve the page, and to whom.
type Options struct {
	Listen    string // absolute path of a unix socket, or "address:port"
	Token     string // the viewers' token; "" admits everybody who uses a name of this machine
	Cert, Key string // PEM files; "" for plain HTTP
}

// maxConnections limits the connections that viewers, and clients without a token, can hold
// open.
const maxConnections = 64

// Serve serves the page until the context ends.
func Serve(ctx context.Context, o Options, source statusapi.Reader) error {
	if err := serve(ctx, o, source); err != nil {
		return fmt.Errorf("node map on %s: %w", o.Listen, err)
	}
	return nil
}

// newServer limits the time of a connection. A stream has its own deadlines.
func newServer(o Options, source statusapi.Reader) *http.Server {
	return &http.Server{
		Handler:           Handler(o, source),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second, // enough for half a megabyte through a slow tunnel
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // omits handshakes that strangers break off
	}
}

func serve(ctx context.Context, o Options, source statusapi.Reader) error {
	server := newServer(o, source)
	var certificate tls.Certificate
	if o.Cert != "" {
		var err error
		if certificate, err = tls.LoadX509KeyPair(o.Cert, o.Key); err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
	}
	listener, err := listen(o.Listen)
	if err != nil {
		return err
	}
	listener = netutil.LimitListener(listener, maxConnections)
	if o.Cert != "" {
		listener = tls.NewListener(listener, &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
	}
	defer context.AfterFunc(ctx, func() {
		server.Close() //nolint:errcheck // the process ends
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if path.IsAbs(o.Listen) {
		return os.Remove(o.Listen)
	}
	return nil
}

func listen(address string) (net.Listener, error) {
	if path.IsAbs(address) {
		return statusapi.Listen(address)
	}
	return net.Listen("tcp", address)
}

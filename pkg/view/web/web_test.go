package web

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// start serves until the test ends. stop returns the server's error.
func start(t *testing.T, o Options) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, o, plugin{}) }()
	return func() error {
		cancel()
		return <-served
	}
}

// get repeats a request until it is answered.
func get(t *testing.T, client *http.Client, address string) *http.Response {
	t.Helper()
	for {
		r, err := client.Get(address)
		if err == nil {
			return r
		}
		if t.Context().Err() != nil || !strings.Contains(err.Error(), "connect") {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestServeOnASocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "run", "web.sock")
	stop := start(t, Options{Listen: socket})
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	if r := get(t, client, "http://localhost/v1/status"); r.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", r.Status, read(t, r))
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
}

func TestServeWithTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	address := freeAddress(t)
	stop := start(t, Options{Listen: address, Token: token, Cert: cert, Key: key})
	pool := x509.NewCertPool()
	data, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(data) {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	if r := get(t, client, "https://"+address+"/v1/status"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s", r.Status)
	}
	if r := get(t, http.DefaultClient, "http://"+address+"/v1/status"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %s", r.Status)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestServeTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, o := range map[string]Options{
		"address already in use": {Listen: taken.Addr().String()},
		"certificate: open":      {Listen: "127.0.0.1:1", Cert: "/nonexistent", Key: "/nonexistent"},
	} {
		err := Serve(t.Context(), o, plugin{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "node map on "+o.Listen) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// calls is a listener in memory.
type calls chan net.Conn

func (c calls) Accept() (net.Conn, error) {
	if conn, ok := <-c; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (c calls) Close() error   { close(c); return nil } // the server calls it once
func (c calls) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A stream continues after the deadline of other answers.
func TestStreamOutlastsDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, incoming := newServer(Options{Token: token}, plugin{}), make(calls)
		go server.Serve(incoming)
		ours, theirs := net.Pipe()
		incoming <- theirs
		if _, err := io.WriteString(ours, "GET /v1/stream HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer "+token+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		lines := bufio.NewScanner(response.Body)
		for began := time.Now(); time.Since(began) < 5*server.WriteTimeout; {
			if !lines.Scan() {
				t.Fatalf("it ends after %v: %v", time.Since(began), lines.Err())
			}
		}
		ours.Close()
		server.Close()
		synctest.Wait()
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// certificate makes a certificate for this machine.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return put("cert", "CERTIFICATE", public), put("key", "PRIVATE KEY", der)
}

// Package statusapi serves the status over a unix socket: as a whole, as a stream of changes,
// and with answers to what a pod or another configuration would get. Client is its client.
package statusapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Reader provides a status. Nobody may change a returned status, because several readers may
// share it.
type Reader interface {
	Status() (*status.Status, error)
	Machine() (*topology.Machine, error)
}

// Source is what the socket serves; the agent implements it.
type Source interface {
	Reader
	WhatIf(pod *workload.Pod, containers []workload.Container) ([]status.Answer, error)
}

// PlanRequest asks what a pod's containers would get.
type PlanRequest struct {
	Pod        *workload.Pod        `json:"pod"`
	Containers []workload.Container `json:"containers"`
}

// These constants limit the size of requests, and the time that they take.
const (
	maxBody   = 2 << 20 // a pod object in etcd has at most 1.5 MiB
	maxHeader = 16 << 10
	readTime  = 5 * time.Second
	writeTime = 10 * time.Second
	idleTime  = time.Minute
)

// Route is an additional route that the socket serves.
type Route struct {
	Pattern string // as in http.ServeMux: "GET /metrics"
	Handler http.Handler
}

// Admission says who may use a socket besides root and this process' own user, and how.
type Admission struct {
	More    []uint32 // users
	Refuser Refuser  // is notified of all other users; may be nil
	MaxBody int64    // size of a request's body, in bytes
	// MaxConnections bounds the connections that are open at a time; 0 sets no bound. The
	// server closes further ones at once.
	MaxConnections int
}

// Serve listens on a unix socket, open to its owner alone, until the context ends. It replaces
// a socket that an earlier run has left. Clients must be root or the user of this process,
// whatever the socket's mode has become since. If the source is a Refuser, Serve notifies it of
// all other clients.
func Serve(ctx context.Context, socket string, source Source, more ...Route) error {
	listener, err := Listen(socket)
	if err != nil {
		return fmt.Errorf("status socket: %w", err)
	}
	refuser, _ := source.(Refuser)
	if err := ServeOn(ctx, listener, handler(source, more...), Admission{Refuser: refuser, MaxBody: maxBody}); err != nil {
		return fmt.Errorf("status socket: %w", err)
	}
	return os.Remove(socket)
}

// ServeOn serves the admitted clients of a unix socket until the context ends.
func ServeOn(ctx context.Context, listener net.Listener, h http.Handler, a Admission) error {
	server := &http.Server{
		Handler: admit(http.MaxBytesHandler(h, a.MaxBody), &a), ConnContext: withPeer,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
	}
	if a.MaxConnections > 0 {
		server.ConnState = LimitConnections(a.MaxConnections)
	}
	defer context.AfterFunc(ctx, func() {
		server.Close() //nolint:errcheck // the process ends
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// LimitConnections returns a hook for http.Server's ConnState that closes each connection beyond
// the limit at once. The server calls it once for a new connection, before anything is read from
// it, and once when it has ended. A limiting listener, as that of golang.org/x/net/netutil, would
// hide the socket that tells the peer, and let new clients wait for idle ones.
func LimitConnections(most int) func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > int64(most) {
				conn.Close() //nolint:errcheck // the server finds it closed, and ends it
			}
		case http.StateClosed:
			open.Add(-1)
		}
	}
}

// Listen creates a unix socket that is open to its owner alone, and replaces an existing one.
func Listen(socket string) (net.Listener, error) { return listen(socket, 0o700, 0o600) }

// ListenGroup creates a unix socket that is open to its owner and its group, and replaces an
// existing one. The group is that of the folder if this passes it on (setgid), and otherwise this
// process's own: the kubelet makes a hostPath folder as root's and without setgid, so that the
// chart runs the plugin's container with the group of sluice-kube (runAsGroup).
func ListenGroup(socket string) (net.Listener, error) { return listen(socket, 0o750, 0o660) }

// listen creates the socket in a private folder and then moves it: nobody can connect before
// its mode is set, whatever the permissions of the final folder.
func listen(socket string, folder, mode os.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), folder); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(socket), ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private) //nolint:errcheck // an empty folder does no harm
	hidden := filepath.Join(private, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, mode), os.Rename(hidden, socket)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// Data serves GET /v1/status, /v1/stream and /v1/topology.
func Data(source Reader) *http.ServeMux {
	mux := http.NewServeMux()
	var last encoded
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		s, err := source.Status()
		if err != nil {
			answer(w, nil, err)
			return
		}
		data, err := last.of(s)
		send(w, data, err)
	})
	mux.Handle("GET /v1/stream", Stream(source))
	mux.HandleFunc("GET /v1/topology", func(w http.ResponseWriter, _ *http.Request) {
		m, err := source.Machine()
		answer(w, m, err)
	})
	return mux
}

func handler(source Source, more ...Route) http.Handler {
	mux := Data(source)
	for _, r := range more {
		mux.Handle(r.Pattern, r.Handler)
	}
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		var request PlanRequest
		err := json.NewDecoder(r.Body).Decode(&request)
		if err != nil || request.Pod == nil {
			http.Error(w, "a plan request is a JSON object with pod and containers", http.StatusBadRequest)
			return
		}
		answers, err := source.WhatIf(request.Pod, request.Containers)
		answer(w, answers, err)
	})
	return mux
}

// encoded caches the last status as JSON, for clients that receive the same one.
type encoded struct {
	mu     sync.Mutex
	status *status.Status
	data   []byte
}

func (e *encoded) of(s *status.Status) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s != e.status {
		data, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		e.status, e.data = s, append(data, '\n')
	}
	return e.data, nil
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	data, err := json.Marshal(value)
	send(w, append(data, '\n'), err)
}

func send(w http.ResponseWriter, data []byte, err error) {
	if err != nil {
		http.Error(w, "a bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(data) //nolint:errcheck // fails only if the client has disconnected
}

// Package kubesocket serves sluice-kube over a unix socket: the stream of the status without its
// containers, the orders to evict pods, their answers, what the API knows of the node's pods, what the
// fleet's switch says, the kubelet's version, and resource claims. The socket's folder is shared with the container of
// sluice-kube, which runs as another user.
package kubesocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// The routes besides the status stream, GET /v1/stream.
const (
	EvictionsPath = "/v1/evictions" // GET: a stream of orders; POST below it, with the order's ID: an answer
	PodsPath      = "/v1/pods"      // PUT: what the API knows of the node's pods
	SwitchPath    = "/v1/switch"    // PUT: what the fleet's switch says for this node
	ClaimsPath    = "/v1/claims"    // PUT and DELETE below it, with the claim's UID
	PartsPath     = "/v1/parts"     // PUT: the parts of the configuration that the fleet's policy has for this node
	KubeletPath   = "/v1/kubelet"   // PUT: the kubelet's version, as "v1.36.0"
)

const (
	// maxBody is enough for evictorder.MaxPods pods of 1 KiB; a usual one has less than 200 bytes.
	maxBody   = 2 << 20
	writeTime = 10 * time.Second
	// maxConnections bounds the connections: sluice-kube has two streams and some requests.
	maxConnections = 16
)

// Options say where the socket is, and who may use it.
type Options struct {
	Path    string
	UID     uint32 // user who may connect besides root and this process' own user
	Claims  Claims
	Refuser statusapi.Refuser
	Fleet   *batchswitch.Fleet // takes what the fleet's switch says
	// SetParts applies the parts that the fleet's policy has for this node.
	SetParts func([]policy.Part) error
	// SetKubelet applies the configuration for a kubelet of that version.
	SetKubelet func(version string) error
	Log        logrus.FieldLogger
}

// Serve serves the socket until the context ends.
func Serve(ctx context.Context, o Options, source statusapi.Reader, link *kubelink.Link) error {
	listener, err := statusapi.ListenGroup(o.Path)
	if err != nil {
		return fmt.Errorf("socket for sluice-kube: %w", err)
	}
	admission := statusapi.Admission{More: []uint32{o.UID}, Refuser: o.Refuser, MaxBody: maxBody, MaxConnections: maxConnections}
	if err := statusapi.ServeOn(ctx, listener, handler(source, link, &o), admission); err != nil {
		return fmt.Errorf("socket for sluice-kube: %w", err)
	}
	return os.Remove(o.Path)
}

func handler(source statusapi.Reader, link *kubelink.Link, o *Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/stream", statusapi.Stream(nodeAlone{source}))
	mux.HandleFunc("GET "+EvictionsPath, func(w http.ResponseWriter, r *http.Request) { stream(w, r, link) })
	mux.HandleFunc("POST "+EvictionsPath+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		body, ok := read(w, r, evictorder.MaxMessage)
		if !ok {
			return
		}
		answer, err := evictorder.DecodeAnswer(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if id := r.PathValue("id"); !link.Answer(id, answer) {
			http.Error(w, fmt.Sprintf("no order %.80q waits for an answer: it was answered, or is past its deadline", id), http.StatusNotFound)
		}
	})
	mux.Handle("PUT "+PodsPath, &podsRoute{link: link, log: o.Log})
	mux.Handle("PUT "+SwitchPath, &switchRoute{fleet: o.Fleet, log: o.Log})
	handleClaims(mux, o.Claims)
	mux.Handle("PUT "+PartsPath, &partsRoute{set: o.SetParts})
	mux.Handle("PUT "+KubeletPath, &kubeletRoute{set: o.SetKubelet})
	return mux
}

// nodeAlone is a status with those containers alone that have CPUs of their own, and with what sluice-kube needs of them, not
// more. To compare and encode all containers of a full node twice a second costs about as much CPU time as
// all the rest of the stream.
type nodeAlone struct{ statusapi.Reader }

func (n nodeAlone) Status() (*status.Status, error) {
	full, err := n.Reader.Status()
	if err != nil {
		return nil, err
	}
	s := *full
	s.Containers = nil
	for i := range full.Containers {
		if c := &full.Containers[i]; c.Pool == "" {
			s.Containers = append(s.Containers, status.Container{ID: c.ID, PodUID: c.PodUID, CPUs: c.CPUs})
		}
	}
	return &s, nil
}

// read reads a body of at most so many bytes. Otherwise it answers, and ok is false.
func read(w http.ResponseWriter, r *http.Request, most int64) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("the body must have at most %d bytes", most), http.StatusRequestEntityTooLarge)
	}
	return body, err == nil // without an answer if the client has disconnected
}

// stream writes the orders, one per line, until the client disconnects, accepts no line for ten
// seconds, or another client connects.
func stream(w http.ResponseWriter, r *http.Request, link *kubelink.Link) {
	session := link.Connect()
	defer session.Close()
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Time{}); err != nil { // a stream has no end
		http.Error(w, "a bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	for line := []byte(nil); ; {
		if connection.SetWriteDeadline(time.Now().Add(writeTime)) != nil {
			return
		}
		if _, err := w.Write(line); err != nil {
			return
		}
		if connection.Flush() != nil { // at first the header alone, so that the client knows that it is connected
			return
		}
		order, more := session.Next(r.Context())
		if !more {
			return
		}
		var err error
		if line, err = json.Marshal(order); err != nil {
			return
		}
		line = append(line, '\n')
	}
}

package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/test/protocol"
)

// BenchmarkLoopBeside measures what sluice-kube costs the plugin, on a node with 110 pods whose
// control loop acts: sluice without the socket for it, with the socket and nobody there, and with
// sluice-kube beside it, which follows the status twice a second. They and a plugin that does nothing
// are measured in the same time: CPU time in two minutes without calls and the memory after them, then
// the creation of containers call by call in turns and the memory after that. sluice-kube's own needs
// are those beside an API server of this process, which has nothing new to tell.
func BenchmarkLoopBeside(b *testing.B) {
	const pods, warm, lives = 110, 50, 2000
	config := filepath.Join(b.TempDir(), "sluice.yaml")
	if err := os.WriteFile(config, []byte("control: {mode: on}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	names := []string{"noop", "alone", "socket", "beside"}
	sides, pids := map[string]*side{}, []int{}
	var agent *protocol.Plugin
	for _, name := range names {
		s := newSide(b, 0, nil, "burstable")
		host := s.busy(b, pods, 1, empty)
		socket := filepath.Join(s.Dir, "kube.sock")
		if name == "noop" {
			s.launch(b, "")
		} else {
			flags := s.SluiceFlags(host, config)
			if name != "alone" {
				flags = append(flags, "--kube-socket", socket)
			}
			var err error
			if s.plugin, err = s.Launch(b, sluice, flags...); err != nil {
				b.Fatalf("%v: %s", err, s.plugin.Log)
			}
		}
		if name == "beside" {
			agent = startAgent(b, socket, pods)
		}
		sides[name], pids = s, append(pids, s.plugin.PID())
	}
	time.Sleep(15 * time.Second) // until each container has been measured and decided on
	for b.Loop() {
		uses := measure(b, 2*time.Minute, append(pids, agent.PID())...)
		for i := range warm + lives {
			if i == warm {
				for _, s := range sides {
					s.took = nil
				}
			}
			for k := range names {
				sides[names[(i+k)%len(names)]].create(b)
			}
		}
		for i, name := range append(slices.Clone(names), "sluice-kube") {
			b.ReportMetric(100*uses[i].CPUs, name+"-cpu-%")
			b.ReportMetric(uses[i].MiB(), name+"-calm-MiB")
		}
		for _, name := range names {
			b.ReportMetric(measure(b, 0, sides[name].plugin.PID())[0].MiB(), name+"-MiB")
			took := sides[name].took
			slices.Sort(took)
			for _, percent := range []int{50, 99} {
				b.ReportMetric(float64(quantile(took, percent).Nanoseconds())/1000, fmt.Sprintf("%s-p%d-µs", name, percent))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// create creates a container, and removes it without measuring that.
func (s *side) create(b *testing.B) {
	c, err := s.Create(s.pod, "measured", protocol.Requests{CPU: 100, Memory: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	measured := len(s.took)
	if err := s.Remove(c); err != nil {
		b.Fatal(err)
	}
	s.took = s.took[:measured]
}

// startAgent starts sluice-kube, and waits until it has published.
func startAgent(b *testing.B, socket string, pods int) *protocol.Plugin {
	b.Helper()
	dir := b.TempDir()
	binary, err := protocol.Build(dir, "plugins/sluice-kube")
	if err != nil {
		b.Fatal(err)
	}
	api := &apiServer{pods: pods}
	server := httptest.NewServer(api)
	b.Cleanup(server.CloseClientConnections) // before the server's end, which waits for the watches
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	agent := protocol.Spawn(b, binary, "run", "--node-name", nodeName, "--kubeconfig", kubeconfig, "--socket", socket)
	for began := time.Now(); api.published.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			b.Fatalf("sluice-kube has published nothing in a minute: %s", agent.Log)
		}
	}
	return agent
}

const nodeName = "n1"

// apiServer is as much of an API server as sluice-kube needs for a node whose pods do not change.
type apiServer struct {
	pods      int
	published atomic.Int64
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPatch:
		var node corev1.Node
		if err := json.NewDecoder(r.Body).Decode(&node); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		node.ResourceVersion = strconv.FormatInt(1+a.published.Add(1), 10)
		answer = &node
	case query.Get("sendInitialEvents") != "":
		http.Error(w, "this server has no watch that begins with a list", http.StatusBadRequest)
		return
	case query.Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	case strings.HasSuffix(r.URL.Path, "/pods"):
		answer = a.list()
	default:
		answer = &corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "1", ResourceVersion: "1"}}},
		}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

// list returns the node's pods.
func (a *apiServer) list() *corev1.PodList {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range a.pods {
		name := fmt.Sprintf("p%d", i)
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), ResourceVersion: "1"},
			Spec:       corev1.PodSpec{NodeName: nodeName},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	return list
}

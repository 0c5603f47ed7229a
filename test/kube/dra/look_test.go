package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

type resourceClaim = resourceapi.ResourceClaim

func fromUnstructured(object *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// specs are the claims that are prepared, with their CPUs, by the CDI specs on disk.
func (r *rounds) specs() map[string]cpuset.Set {
	r.Helper()
	files, err := filepath.Glob(r.node.Path("/run/cdi/*.json"))
	if err != nil {
		r.Fatal(err)
	}
	all := map[string]cpuset.Set{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // the claim has ended meanwhile
		}
		if err != nil {
			r.Fatal(err)
		}
		c, err := claim.ReadSpec(text)
		if err != nil {
			r.Fatalf("%s: %v", file, err)
		}
		all[c.UID] = c.Devices[0].Reserved
	}
	return all
}

// reserved are the claims of which the plugin says that they have CPUs, and all CPUs that are somebody's own.
func (r *rounds) reserved() (all map[string]cpuset.Set, pinned cpuset.Set, err error) {
	out, err := r.node.Command(r.sluice, "status", "-o", "json").Output()
	if err != nil {
		return nil, pinned, fmt.Errorf("the plugin's status: %w", err)
	}
	var s status.Status
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, pinned, err
	}
	if s.Claims == nil {
		return nil, pinned, fmt.Errorf("the plugin knows no claims yet")
	}
	all = map[string]cpuset.Set{}
	for _, c := range s.Claims.Reserved {
		if c.Problem != "" {
			r.Errorf("%s: %s", c.Ref, c.Problem)
		}
		all[strings.TrimSuffix(c.ID, "-0")] = c.CPUs
	}
	return all, s.Machine.Pinned, nil
}

// running is a container as the kernel has it.
type running struct {
	id, role string
	cpus     cpuset.Set // of its cgroup
	claim    string     // the variable of its environment that names its claim
	given    cpuset.Set // CPUs of the claim when the container began
}

// containers lists the containers of the node's pods whose processes run, by their cgroups.
func (r *rounds) containers() []running {
	r.Helper()
	mounts, err := host.Mounts()
	if err != nil {
		r.Fatal(err)
	}
	m := mounts[slices.IndexFunc(mounts, func(m host.Mount) bool { return slices.Contains(m.Controllers, "cpuset") })]
	file := "cpuset.cpus"
	if m.V2 {
		file = "cpuset.cpus.effective"
	}
	var all []running
	for _, dir := range host.Below(m.Path(r.node.CgroupRoot, "kubepods")) {
		pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		pid, _, _ := strings.Cut(string(pids), "\n")
		if err != nil || pid == "" {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
		text, err2 := os.ReadFile(filepath.Join(dir, file))
		if err != nil || err2 != nil {
			continue // it has just ended
		}
		c := running{id: filepath.Base(dir)}
		for variable := range strings.SplitSeq(string(environ), "\x00") {
			name, value, _ := strings.Cut(variable, "=")
			switch {
			case name == "ROLE":
				c.role = variable
			case strings.HasPrefix(name, "SLUICE_CLAIM_"):
				c.claim = name
				if c.given, err = cpuset.Parse(value); err != nil {
					r.Fatal(err)
				}
			}
		}
		if c.role == "" {
			continue // a sandbox, or runc's first process
		}
		if c.cpus, err = cpuset.Parse(strings.TrimSpace(string(text))); err != nil {
			r.Fatal(err)
		}
		if c.role == claims {
			r.ran[c.id] = true
		}
		all = append(all, c)
	}
	return all
}

// countSlices counts the changes of ResourceSlices from now on.
func (s *stand) countSlices(t testing.TB) (count func() int64) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	changes, err := s.Client(t).ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{ResourceVersion: s.version(t)})
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	go func() {
		for range changes.ResultChan() {
			n.Add(1)
		}
	}()
	return n.Load
}

func (s *stand) version(t testing.TB) string {
	t.Helper()
	list, err := s.Client(t).ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// ending is a host's root whose files can be opened, but these can't be read: their process has just ended.
type ending struct {
	fstest.MapFS
	ended    string // prefix of the files
	entryErr error  // of ReadDir, after all entries
}

func (e ending) Open(name string) (fs.File, error) {
	f, err := e.MapFS.Open(name)
	if err == nil && e.ended != "" && strings.HasPrefix(name, e.ended) {
		return unreadable{f}, nil
	}
	return f, err
}

func (e ending) ReadFile(name string) ([]byte, error) {
	if e.ended != "" && strings.HasPrefix(name, e.ended) {
		return nil, syscall.ESRCH
	}
	return e.MapFS.ReadFile(name)
}

func (e ending) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := e.MapFS.ReadDir(name)
	return entries, errors.Join(err, e.entryErr)
}

type unreadable struct{ fs.File }

func (unreadable) Read([]byte) (int, error) { return 0, syscall.ESRCH }

// TestFindProcesses checks what one pass over the processes finds, in the order of their names.
func TestFindProcesses(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("d/", 4096)
	many := strings.Repeat("--feature-gates=Some=true\x00", 1000)
	for name, test := range map[string]struct {
		files   map[string]string
		ended   string
		kubelet int
		args    int // number of the kubelet's arguments
		agents  string
	}{
		"several kubelets": {
			files:   map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00", "proc/10/comm": "kubelet\n", "proc/10/cmdline": "kubelet\x00--x\x00"},
			kubelet: 10, args: 2,
		},
		"a kubelet in a container": {
			files:   map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "/usr/local/bin/kubelet\x00", "proc/9/cgroup": "0::/system.slice/docker-1f.scope\n", "proc/9/status": rootStatus},
			kubelet: 9, args: 1,
		},
		"a kernel thread":              {files: map[string]string{"proc/9/comm": "kworker/0:1-events\n", "proc/9/cmdline": ""}},
		"a kubelet without arguments":  {files: map[string]string{"proc/10/comm": "kubelet\n", "proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00"}, kubelet: 9, args: 1},
		"a kubelet that has ended":     {files: map[string]string{"proc/10/comm": "kubelet\n", "proc/10/cmdline": "kubelet\x00--x\x00", "proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00"}, ended: "proc/10/cmdline", kubelet: 9, args: 1},
		"an agent that has ended":      {files: map[string]string{"proc/10/comm": "koordlet\n", "proc/10/cmdline": "koordlet\x00"}, ended: "proc/10/"},
		"an agent that is a zombie":    {files: map[string]string{"proc/9/comm": "koordlet\n", "proc/9/cmdline": "", "proc/9/status": rootStatus}, agents: "koordlet: 9"},
		"many arguments":               {files: map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00" + many}, kubelet: 9, args: 1001},
		"a long first argument":        {files: map[string]string{"proc/9/comm": "x\n", "proc/9/cmdline": long + "koordlet\x00--x\x00"}, agents: "koordlet: 9"},
		"a first argument without end": {files: map[string]string{"proc/9/comm": "x\n", "proc/9/cmdline": "/" + strings.Repeat("d", 4086) + "/koordlet-helper\x00"}},
		"a name in parentheses":        {files: map[string]string{"proc/9/comm": "(kubelet)\n", "proc/9/cmdline": "kubelet\x00", "proc/10/comm": "a) koordlet (b\n"}},
		"a name of words":              {files: map[string]string{"proc/9/comm": "kubelet koordlet\n", "proc/9/cmdline": "my koordlet\x00"}},
		"both in one": {
			files:   map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "/koordlet\x00--x\x00", "proc/9/status": rootStatus},
			kubelet: 9, args: 2, agents: "koordlet: 9",
		},
		"both in one in a pod": {
			files:  map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "/katalyst-agent\x00", "proc/9/cgroup": "0::/kubepods/x\n", "proc/9/status": rootStatus},
			agents: "katalyst-agent: 9",
		},
		"a long name before a short one": {
			files:   map[string]string{"proc/10/comm": "koordlet-and-mor\n", "proc/10/cmdline": many, "proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00"},
			kubelet: 9, args: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			search := Search{Host: ending{MapFS: files(test.files), ended: test.ended}}
			got, err := search.findProcesses()
			var agents []string
			for _, kind := range []Kind{Koordlet, Katalyst} {
				if pid := got.agents[kind]; pid != "" {
					agents = append(agents, fmt.Sprintf("%s: %s", kind, pid))
				}
			}
			if err != nil || got.kubelet != test.kubelet || len(got.args) != test.args || strings.Join(agents, " ") != test.agents {
				t.Errorf("found kubelet %d with %d arguments, agents %q, error %v; want %d with %d, %q",
					got.kubelet, len(got.args), agents, err, test.kubelet, test.args, test.agents)
			}
		})
	}
}

// TestSomeProcesses checks that what could be listed counts although the list has an error.
func TestSomeProcesses(t *testing.T) {
	t.Parallel()
	host := ending{MapFS: files(map[string]string{"proc/8/comm": "koordlet\n", "proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00--x\x00"}), entryErr: syscall.EIO}
	kubelet, found, err := Detect(host)
	if !errors.Is(err, syscall.EIO) || kubelet.PID != 9 || !reflect.DeepEqual(kubelet.Args, []string{"kubelet", "--x"}) || len(found) != 1 {
		t.Errorf("found %+v, %+v, %v", kubelet, found, err)
	}
}

// opened is a host's root that records which files are opened.
type opened struct {
	fstest.MapFS
	files []string
}

func (o *opened) Open(name string) (fs.File, error) {
	o.files = append(o.files, name)
	return o.MapFS.Open(name)
}

func (o *opened) ReadFile(name string) ([]byte, error) { return fs.ReadFile(o.MapFS, name) }

// TestSearchAgain checks that later searches look at new processes, agents and kubelets, and sometimes at all.
func TestSearchAgain(t *testing.T) {
	t.Parallel()
	host := &opened{MapFS: files(map[string]string{
		"proc/1/comm": "systemd\n", "proc/1/cmdline": "systemd\x00",
		"proc/7/comm": "nginx\n", "proc/7/cmdline": "nginx\x00",
		"proc/8/comm": "koordlet\n", "proc/8/cmdline": "koordlet\x00",
		"proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00--x\x00",
	})}
	s := Search{Host: host}
	search := func(looks string, kubelet, agents int) {
		t.Helper()
		host.files = nil
		found, err := s.findProcesses()
		var looked []string
		for _, name := range host.files {
			if pid, ok := strings.CutSuffix(strings.TrimPrefix(name, "proc/"), "/comm"); ok {
				looked = append(looked, pid)
			}
		}
		if err != nil || strings.Join(looked, " ") != looks || found.kubelet != kubelet || len(found.agents) != agents {
			t.Errorf("search %d looked at %q and found kubelet %d and agents %v, error %v; want %q, %d and %d agents", s.searches, looked, found.kubelet, found.agents, err, looks, kubelet, agents)
		}
	}
	search("1 7 8 9", 9, 1)
	search("1 7 8 9", 9, 1)
	search("8 9", 9, 1)
	delete(host.MapFS, "proc/8/comm")
	delete(host.MapFS, "proc/8/cmdline")
	host.MapFS["proc/10/comm"] = &fstest.MapFile{Data: []byte("sh\n")}
	host.MapFS["proc/10/cmdline"] = &fstest.MapFile{Data: []byte("sh\x00")}
	search("10 9", 9, 0)
	host.MapFS["proc/10/comm"] = &fstest.MapFile{Data: []byte("katalyst-agent\n")} // by exec(2)
	for range 2 {
		search("10 9", 9, 1)
	}
	host.MapFS["proc/7/comm"] = &fstest.MapFile{Data: []byte("koordlet\n")} // after more than two searches
	for s.searches < allProcesses {
		search("10 9", 9, 1)
	}
	search("1 10 7 9", 9, 2)
}

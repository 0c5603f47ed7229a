package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

const (
	kubeletName = "kubelet"         // the comm of its process
	defaultRoot = "var/lib/kubelet" // its root folder unless --root-dir names another
)

// Kubelet is the node's kubelet, with its process and its root folder.
type Kubelet struct {
	PID  int      // 0 if no process is called kubelet (k3s and microk8s run it inside another)
	Args []string // arguments of the process
	Root string   // its root folder as a path below the host's root: "var/lib/kubelet"
}

// FindKubelet finds the kubelet below the host's root folder. The kubelet's root folder is the
// one in its arguments, or else the folder below which pods' volumes are mounted, or else the
// default. The error says that the folder is not visible, so that its content is unknown.
func FindKubelet(host fs.FS) (Kubelet, error) {
	running, _ := (&Search{Host: host}).findProcesses() // Detect reports the error
	return running.findKubelet(host)
}

func (p *processes) findKubelet(host fs.FS) (Kubelet, error) {
	k := Kubelet{Root: defaultRoot, PID: p.kubelet, Args: p.args}
	if k.PID != 0 {
		if root, ok := k.Flag("root-dir"); ok {
			k.Root = hostPath(root)
		}
	} else if root := rootByMounts(host); root != "" {
		k.Root = root
	}
	if k.PID == 0 && k.Root == defaultRoot {
		return k, nil // perhaps there is no kubelet
	}
	if _, err := fs.Stat(host, k.Root); err != nil {
		return k, fmt.Errorf("the kubelet's root folder /%s can't be read: %w; make it visible below Sluice's host root (in a pod: mount it there)", k.Root, err)
	}
	return k, nil
}

// File returns the path of a file in the kubelet's root folder, below the host's root.
func (k *Kubelet) File(name string) string { return path.Join(k.Root, name) }

// Flag returns the last value of one of the kubelet's flags, given as --name=value or --name
// value.
func (k *Kubelet) Flag(name string) (value string, ok bool) {
	for i, arg := range k.Args {
		given, found := strings.CutPrefix(arg, "--"+name)
		switch {
		case found && given == "" && i+1 < len(k.Args):
			value, ok = k.Args[i+1], true
		case found && strings.HasPrefix(given, "="):
			value, ok = given[1:], true
		}
	}
	return value, ok
}

// hostPath converts an absolute path of the host into the form of fs.FS.
func hostPath(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// inPod reports whether a process is in a pod's cgroup. Such a process does not count as the
// kubelet, since it could make Sluice read files of its choice.
func inPod(host fs.FS, pid string) bool {
	cgroup, _ := fs.ReadFile(host, path.Join("proc", pid, "cgroup")) // a process that has just ended is skipped later
	return strings.Contains(string(cgroup), "kubepods")
}

// rootByMounts returns the kubelet's root folder by the volumes that it mounts for pods, at
// <root>/pods/<uid>/volumes/kubernetes.io~<kind>/<name>. Nearly every pod has a projected one
// for its service account. The result is empty if no pod has a volume.
func rootByMounts(host fs.FS) string {
	text, err := fs.ReadFile(host, "proc/1/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // id, parent, device, root, mount point, options ... (proc(5))
		if len(fields) < 5 {
			continue
		}
		root, rest, found := strings.Cut(fields[4], "/pods/")
		if found && strings.Contains(rest, "/volumes/kubernetes.io~") && path.IsAbs(root) {
			return hostPath(root)
		}
	}
	return ""
}

// readState reads a state file of the kubelet; nil if there is none.
func readState(host fs.FS, name string) ([]byte, error) {
	text, err := fs.ReadFile(host, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

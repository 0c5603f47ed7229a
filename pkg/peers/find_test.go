package peers

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// files returns a host's root folder with these files.
func files(texts map[string]string) fstest.MapFS {
	host := fstest.MapFS{"proc/1/comm": {Data: []byte("systemd\n")}}
	for name, text := range texts {
		host[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return host
}

const volumes = "31 1 0:40 / /run rw - tmpfs tmpfs rw\n" +
	"99 1 0:77 / /var/snap/microk8s/common/var/lib/kubelet/pods/9e1f/volumes/kubernetes.io~projected/kube-api-access-x rw,relatime shared:9 - tmpfs tmpfs rw\n"

func TestFindKubelet(t *testing.T) {
	t.Parallel()
	const k0s = "/var/lib/k0s/bin/kubelet\x00--config=/run/k0s/c.yaml\x00--root-dir=/var/lib/k0s/kubelet\x00"
	for name, test := range map[string]struct {
		files map[string]string
		root  string
		pid   int
		bad   string // part of the error
	}{
		"none":        {nil, "var/lib/kubelet", 0, ""},
		"by default":  {map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "/usr/bin/kubelet\x00", "var/lib/kubelet/config.yaml": ""}, "var/lib/kubelet", 9, ""},
		"by its flag": {map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": k0s, "var/lib/k0s/kubelet/x": ""}, "var/lib/k0s/kubelet", 9, ""},
		"flag and value apart": {map[string]string{
			"proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00--root-dir\x00/data/kubelet/\x00", "data/kubelet/x": "",
		}, "data/kubelet", 9, ""},
		"a root that is not mounted": {map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": k0s}, "var/lib/k0s/kubelet", 9, "/var/lib/k0s/kubelet can't be read"},
		"inside another program":     {map[string]string{"proc/1/mountinfo": volumes, "var/snap/microk8s/common/var/lib/kubelet/x": ""}, "var/snap/microk8s/common/var/lib/kubelet", 0, ""},
		"its flag before mounts":     {map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": k0s, "proc/1/mountinfo": volumes, "var/lib/k0s/kubelet/x": ""}, "var/lib/k0s/kubelet", 9, ""},
		"a pod's process": {map[string]string{
			"proc/9/comm": "kubelet\n", "proc/9/cmdline": k0s, "proc/9/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/x\n",
		}, "var/lib/kubelet", 0, ""},
		"a pod's process by its rights": {map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": k0s, "proc/9/status": podStatus}, "var/lib/kubelet", 0, ""},
		"a path that leads out":         {map[string]string{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00--root-dir=../../etc\x00", "etc/x": ""}, "etc", 9, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := FindKubelet(files(test.files))
			if k.Root != test.root || k.PID != test.pid {
				t.Errorf("found %+v, want root %s of process %d", k, test.root, test.pid)
			}
			if (err != nil) != (test.bad != "") || err != nil && !strings.Contains(err.Error(), test.bad) {
				t.Errorf("error %v, want one about %q", err, test.bad)
			}
		})
	}
}

// TestManagersElsewhere checks that the static managers are found in the kubelet's configured root
// folder, and that an old file in the default one has no effect.
func TestManagersElsewhere(t *testing.T) {
	t.Parallel()
	host := files(map[string]string{
		"proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00--root-dir=/var/lib/k0s/kubelet\x00",
		"var/lib/k0s/kubelet/cpu_manager_state": `{"policyName":"static","defaultCpuSet":"0-3"}`,
		"var/lib/kubelet/memory_manager_state":  `{"policyName":"Static"}`,
	})
	_, found, err := Detect(host)
	if err != nil || len(found) != 1 || found[0].Kind != CPUManager || !strings.Contains(found[0].Fix, "/var/lib/k0s/kubelet/cpu_manager_state") {
		t.Errorf("found %+v, %v; want the CPU manager in /var/lib/k0s/kubelet alone", found, err)
	}
	delete(host, "var/lib/k0s/kubelet/cpu_manager_state")
	if _, found, err = Detect(host); err == nil || len(found) != 0 || !strings.Contains(err.Error(), "is unknown") {
		t.Errorf("found %+v, %v; want an error: the folder can't be seen", found, err)
	}
}

func FuzzFindKubelet(f *testing.F) {
	f.Add("kubelet\x00--root-dir=/data\x00", "")
	f.Add("", volumes)
	f.Add("kubelet\x00--root-dir\x00", "1 2 3 4 /pods/x/volumes/kubernetes.io~\n")
	f.Fuzz(func(t *testing.T, cmdline, mounts string) {
		host := files(map[string]string{"proc/1/mountinfo": mounts})
		if cmdline != "" {
			host["proc/9/comm"] = &fstest.MapFile{Data: []byte("kubelet\n")}
			host["proc/9/cmdline"] = &fstest.MapFile{Data: []byte(cmdline)}
		}
		k, err := FindKubelet(host)
		if err == nil && !fs.ValidPath(k.File(cpuManagerState)) {
			t.Errorf("%+v, %v", k, err)
		}
	})
}

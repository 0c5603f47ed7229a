package bed_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readLine(t *testing.T, from io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// remains lists what is on the machine of the bed with that folder: processes, mounts,
// cgroups, network interfaces and files.
func remains(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	name := filepath.Base(dir)
	for _, pattern := range []string{dir, "/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(commands, "/proc/self/mountinfo") {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), dir+"/") {
			left = append(left, file)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if strings.HasPrefix(link.Name, "slbed"+strings.TrimPrefix(name, "sluicebed-")+"-") {
			left = append(left, link.Name)
		}
	}
	return left
}

// settings are the machine's values of what a kubelet, containerd and CNI's plugins set.
func settings(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "fs/inotify/max_user_instances",
	} {
		text, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(name + " = " + string(text))
	}
	return all.String()
}

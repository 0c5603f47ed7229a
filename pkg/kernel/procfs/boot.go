package procfs

import (
	"io/fs"
	"strings"
)

// BootID is the kernel's id of this boot, "" where it tells none.
func BootID(host fs.FS) string { return word(host, "proc/sys/kernel/random/boot_id") }

// Release is the running kernel's, as "6.1.0-13-cloud-amd64"; a made-up machine has none.
func Release(host fs.FS) string { return word(host, "proc/sys/kernel/osrelease") }

func word(host fs.FS, name string) string {
	text, _ := fs.ReadFile(host, name)
	return strings.TrimSpace(string(text))
}

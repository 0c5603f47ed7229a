package procfs

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
)

// BootID returns the kernel's ID of this boot, "" if it can't be read.
func BootID(host fs.FS) string { return word(host, "proc/sys/kernel/random/boot_id") }

// Release returns the running kernel's release, such as "6.1.0-13-cloud-amd64"; it is "" for a
// synthetic machine.
func Release(host fs.FS) string { return word(host, "proc/sys/kernel/osrelease") }

// HasSwap reports whether the node has a swap area in use. A kernel without swap lacks
// /proc/swaps.
func HasSwap(host fs.FS) (bool, error) {
	text, err := fs.ReadFile(host, "proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Count(bytes.TrimSpace(text), []byte{'\n'}) > 0, err // the first line names the columns
}

func word(host fs.FS, name string) string {
	text, _ := fs.ReadFile(host, name)
	return strings.TrimSpace(string(text))
}

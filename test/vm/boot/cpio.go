package boot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// archive writes a cpio archive in the newc format that the kernel unpacks as its first root, see
// Documentation/driver-api/early-userspace/buffer-format.rst.
type archive struct {
	w     io.Writer
	inode int
	dirs  []string // folders that have been added
	err   error    // the first error; later writes are dropped
}

// These are types of files in the mode, see stat(2).
const (
	regular   = 0o100000
	directory = 0o040000
)

// add adds one file or folder with the mode, after its parents.
func (a *archive) add(name string, mode int, content []byte) {
	a.inode++
	// The header's fields are: inode, mode, owner and group, links, time, size, device, the device
	// that it is, length of the name with its NUL, checksum (none in this format).
	head := fmt.Sprintf("070701%08X%08X%016X%08X%08X%08X%016X%016X%08X%08X%s\x00",
		a.inode, mode, 0, 1, 0, len(content), 0, 0, len(name)+1, 0, name)
	a.write([]byte(head + padding(len(head))))
	a.write(content)
	a.write([]byte(padding(len(content))))
}

// mkdir adds a folder and its missing parents.
func (a *archive) mkdir(dir string) {
	if dir == "." || slices.Contains(a.dirs, dir) {
		return
	}
	a.mkdir(path.Dir(dir))
	a.dirs = append(a.dirs, dir)
	a.add(dir, directory|0o755, nil)
}

// close ends the archive.
func (a *archive) close() error {
	a.add("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) write(data []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(data)
	}
}

// padding returns the bytes up to a multiple of four.
func padding(n int) string { return strings.Repeat("\x00", -n&3) }

// WriteRoot writes the archive of a guest's first root to a file: the host's files by their paths in
// the guest, all executable; the texts; and what every program expects in /etc.
func WriteRoot(archive string, files, texts map[string]string) error {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	return errors.Join(pack(w, files, texts), w.Flush(), out.Close())
}

func pack(w io.Writer, files, texts map[string]string) error {
	a := &archive{w: w}
	a.mkdir("root")
	a.mkdir("var/tmp")
	all := map[string]string{
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/resolv.conf": "",
		"etc/hostname":    "vm\n",
		"etc/passwd":      "root:x:0:0:root:/:/bin/sh\n",
		"etc/group":       "root:x:0:\n",
		"etc/machine-id":  "00000000000000000000000000000001\n", // without it, systemd takes this for the first boot
	}
	maps.Copy(all, texts)
	for name, text := range all {
		a.mkdir(path.Dir(name))
		a.add(name, regular|0o644, []byte(text))
	}
	for to, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		a.mkdir(path.Dir(to))
		a.add(to, regular|0o755, content)
	}
	return a.close()
}

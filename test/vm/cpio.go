package vm

import (
	"fmt"
	"io"
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

package resctrl

import (
	"io"
	"os"
)

// Files is a tree of files as the kernel shows it. Its errors contain the kernel's errno.
type Files interface {
	Read(name string) (string, error)
	Writer(name string) (io.WriteCloser, error) // the file must exist; each Write is one write(2)
	Mkdir(name string) error
	Rmdir(name string) error
	List(name string) ([]string, error) // names of the folder's entries in any order
}

// folder implements Files on a folder of this machine. No name leads out of it.
type folder struct{ root *os.Root }

func (f folder) Read(name string) (string, error) {
	text, err := f.root.ReadFile(name)
	return string(text), err
}

func (f folder) Writer(name string) (io.WriteCloser, error) {
	return f.root.OpenFile(name, os.O_WRONLY, 0)
}

func (f folder) Mkdir(name string) error { return f.root.Mkdir(name, 0o755) }

func (f folder) Rmdir(name string) error { return f.root.Remove(name) }

func (f folder) List(name string) ([]string, error) {
	dir, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

package synth

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"
)

// files is a tree by name. It is an fstest.MapFS, which searches all names for one that does
// not exist, with a fast answer for the thousands of optional files.
type files struct{ fstest.MapFS }

// put writes a value and a newline.
func (f files) put(name string, value any) {
	f.MapFS[name] = &fstest.MapFile{Data: fmt.Appendln(nil, value), Mode: 0o444}
}

func (f files) link(name, target string) {
	f.MapFS[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// ReadFile reads a regular file, for fs.ReadFile.
func (f files) ReadFile(name string) ([]byte, error) {
	file := f.MapFS[name]
	if file == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if !file.Mode.IsRegular() {
		return f.MapFS.ReadFile(name)
	}
	return append([]byte(nil), file.Data...), nil
}

// FS returns the machine's host root in memory: sys and proc/meminfo.
func (s Spec) FS() fs.FS { return s.files() }

// WriteTo writes the machine's host root below dir, which need not exist but
// must not hold another one.
func (s Spec) WriteTo(dir string) error {
	made := map[string]bool{}
	for name, file := range s.files().MapFS {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if parent := filepath.Dir(path); !made[parent] {
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return fmt.Errorf("write a machine's tree: %w", err)
			}
			made[parent] = true
		}
		var err error
		if file.Mode&fs.ModeSymlink != 0 {
			err = os.Symlink(string(file.Data), path)
		} else {
			err = os.WriteFile(path, file.Data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write a machine's tree: %w", err)
		}
	}
	return nil
}

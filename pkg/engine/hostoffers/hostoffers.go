// Package hostoffers writes the files that tell host applications what they may use of the node. YARN
// has its own units for it: vcores and MB.
//
//	{"vcores":5,"memoryMB":20480,"validUntil":"2026-11-25T09:05:00Z"}
//
// A file is replaced as a whole, and anyone may read it. A plugin that has ended writes nothing, so
// that each file says until when it holds.
package hostoffers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Valid is how long a file holds after it was written.
const Valid = 5 * time.Minute

// Content is what a file has.
type Content struct {
	VCores     int       `json:"vcores"`
	MemoryMB   int       `json:"memoryMB"` // in units of 2^20 bytes, as YARN counts
	Why        string    `json:"why,omitempty"`
	ValidUntil time.Time `json:"validUntil,omitzero"`
}

// InYARNUnits converts an amount to whole vcores and MB, rounded down.
func InYARNUnits(a control.Amount) (vcores, memoryMB int) {
	return int(a.CPU) / 1000, int(a.MemoryBytes >> 20)
}

// Write replaces a file. It makes its folder if that is missing, and refuses a folder in which others
// than root may replace files, since they could lead the write elsewhere.
func Write(file string, c *Content) (err error) {
	dir := filepath.Dir(file)
	if err := makeFolder(dir); err != nil {
		return err
	}
	if err := isRoots(dir); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	_, err = next.Write(append(text, '\n'))
	if err = errors.Join(err, next.Chmod(0o644), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), file)
}

// makeFolder makes a folder that the application, which is not root, can read, whatever the umask.
func makeFolder(dir string) error {
	if _, err := os.Lstat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // see above
}

// isRoots reports whether only root may change what a folder has.
func isRoots(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || owner.Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s must be a folder of root that no one else can write to, such as one that Sluice makes because it is not there", dir)
	}
	return nil
}

// Remove removes a file, if it is there.
func Remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Package notices writes the files from which pods learn what batch work has to expect
// (control.Notice). Each pod that asks for it has a folder of its own in the runtime folder, which the
// container runtime mounts read-only into its containers, with one file that is replaced as a whole:
//
//	{"kind":"squeeze","beginsAt":"2026-11-25T09:00:00Z","endsAt":"2026-11-25T09:20:00Z","why":"..."}
//
// The kind is "none" while nothing is to be expected. The folder stays for as long as the pod does,
// over restarts of the plugin, because the mount would not follow another one. A plugin that is away
// writes nothing, so that each notice has an end.
package notices

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// What a container sees.
const (
	Mounted  = "/run/sluice-notice" // folder
	File     = "notice.json"        // file in it
	Variable = "SLUICE_NOTICE"      // environment variable with the path of the file
)

const (
	dirName   = "notices"  // in the runtime folder
	newFile   = File + "+" // before it replaces File
	noKind    = "none"
	longest   = 512 // of the reason, in bytes
	uidLength = 128 // in bytes; Kubernetes' own have 36, those of static pods 32
)

// content is what the file has.
type content struct {
	Kind     control.NoticeKind `json:"kind"`
	BeginsAt time.Time          `json:"beginsAt,omitzero"`
	EndsAt   time.Time          `json:"endsAt,omitzero"`
	Why      string             `json:"why,omitempty"`
}

// Folder has the folders of all pods. Its methods may be called at the same time.
type Folder struct {
	path string

	mu   sync.Mutex
	root *os.Root        // of path: nothing that is in it leads outside
	pods map[string]bool // UIDs of the pods with a folder
	text []byte          // of the notice that holds
}

// Open opens the folder of notices in a runtime folder, and makes it if it is missing. It keeps the
// pods' folders that it finds.
func Open(runtimeDir string) (*Folder, error) {
	f := &Folder{path: filepath.Join(runtimeDir, dirName), pods: map[string]bool{}, text: textOf(control.Notice{})}
	if err := os.Mkdir(f.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, err
	}
	f.root = root
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	for _, e := range entries {
		f.pods[e.Name()] = true
	}
	return f, nil
}

// Add makes the folder of a pod, with the notice that holds, and returns its path on the node.
func (f *Folder) Add(uid string) (path string, err error) {
	if !isUID(uid) {
		return "", fmt.Errorf("%.40q is no UID: it must have 1 to %d letters, digits and '-'", uid, uidLength)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.root.Mkdir(uid, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	f.pods[uid] = true
	if err := f.write(uid); err != nil {
		return "", errors.Join(err, f.remove(uid))
	}
	return filepath.Join(f.path, uid), f.root.Chmod(uid, 0o755) // not by Mkdir, which a umask narrows; what is above it is closed to others
}

// Write writes the notice that holds from now on into the folders of all pods.
func (f *Folder) Write(n control.Notice) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = textOf(n)
	var errs []error
	for uid := range f.pods {
		errs = append(errs, f.write(uid))
	}
	return errors.Join(errs...)
}

// Remove removes the folder of a pod, if it has one.
func (f *Folder) Remove(uid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.pods[uid] {
		return nil
	}
	return f.remove(uid)
}

// Keep removes the folders of all pods but those that exist.
func (f *Folder) Keep(exists func(uid string) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for uid := range f.pods {
		if !exists(uid) {
			errs = append(errs, f.remove(uid))
		}
	}
	return errors.Join(errs...)
}

// Close closes the folder. Pods keep theirs.
func (f *Folder) Close() error { return f.root.Close() }

// RemoveAll removes the folders of all pods from a runtime folder, while no plugin runs. Running
// containers then find no file.
func RemoveAll(runtimeDir string) error { return os.RemoveAll(filepath.Join(runtimeDir, dirName)) }

func (f *Folder) remove(uid string) error {
	if err := f.root.RemoveAll(uid); err != nil {
		return err
	}
	delete(f.pods, uid)
	return nil
}

// write replaces the file of a pod. Were a container to get write access to its folder, a link that
// it leaves there would be replaced, and not followed.
func (f *Folder) write(uid string) error {
	name := filepath.Join(uid, newFile)
	if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(f.text)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return f.root.Rename(name, filepath.Join(uid, File))
}

func textOf(n control.Notice) []byte {
	c := content{Kind: noKind}
	if n.Kind != "" {
		c = content{n.Kind, n.BeginsAt, n.EndsAt, n.Why}
		if len(c.Why) > longest {
			c.Why = strings.ToValidUTF8(c.Why[:longest], "") + "…"
		}
	}
	text, _ := json.Marshal(c) //nolint:errchkjson // strings and times of this century can be marshalled
	return append(text, '\n')
}

// isUID reports whether a text can be the UID of a pod, which becomes the name of a folder.
func isUID(text string) bool {
	other := func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		return !letter && (c < '0' || c > '9') && c != '-'
	}
	return text != "" && len(text) <= uidLength && !strings.ContainsFunc(text, other)
}

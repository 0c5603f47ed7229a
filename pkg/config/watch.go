package config

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// settled is how long a file must have stayed as it is before it is read: an editor
// writes in several steps.
const settled = 200 * time.Millisecond

// Watcher has a file read again when it may have changed, and when somebody asks.
type Watcher struct {
	File string
	Asks <-chan os.Signal // SIGHUP
	Read func(asked bool) // asked: by the signal
	Log  logrus.FieldLogger
}

// Run watches until the context ends. It watches the file's folder, not the file: an
// editor puts another in its place, and so does a ConfigMap's volume with the folder
// that the file is a link into.
func (w *Watcher) Run(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	if folder, err := w.open(); err != nil {
		w.Log.WithError(err).Warn("The configuration is not watched: it is read again on SIGHUP alone")
	} else {
		defer folder.Close() //nolint:errcheck // it was only read
		events, errs = folder.Events, folder.Errors
	}
	quiet := time.NewTimer(0) // it may have changed since it was read
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Asks:
			w.Read(true)
		case <-events:
			quiet.Reset(settled)
		case err := <-errs: // events may be lost
			w.Log.WithError(err).Debug("Watching the configuration")
			quiet.Reset(settled)
		case <-quiet.C:
			w.Read(false)
		}
	}
}

func (w *Watcher) open() (*fsnotify.Watcher, error) {
	folder, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := folder.Add(filepath.Dir(w.File)); err != nil {
		folder.Close() //nolint:errcheck // nothing was watched
		return nil, err
	}
	return folder, nil
}

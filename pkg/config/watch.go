package config

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// settled is how long a file must be unchanged before it is read, because editors write in
// several steps.
const settled = 200 * time.Millisecond

// Watcher calls Read when a file may have changed, and on request.
type Watcher struct {
	File string
	Asks <-chan os.Signal // SIGHUP
	Read func(asked bool) // asked reports that the reason is the signal
	Log  logrus.FieldLogger
}

// Run watches until the context ends. It watches the file's folder, not the file: editors
// replace the file, and a ConfigMap's volume replaces the folder that the file links into.
func (w *Watcher) Run(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	if folder, err := w.open(); err != nil {
		w.Log.WithError(err).Warn("The configuration is not watched: it is read again on SIGHUP alone")
	} else {
		defer folder.Close() //nolint:errcheck // closing a watch loses no data
		events, errs = folder.Events, folder.Errors
	}
	quiet := time.NewTimer(0) // the file may have changed since it was read
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Asks:
			w.Read(true)
		case <-events:
			quiet.Reset(settled)
		case err := <-errs: // events may be missing
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
		folder.Close() //nolint:errcheck // there is no watch to lose
		return nil, err
	}
	return folder, nil
}

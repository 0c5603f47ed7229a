package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/status"
)

// settled is how long a file must have stayed as it is before it is read: an editor
// writes in several steps.
const settled = 200 * time.Millisecond

// watcher calls read when a file may have changed, and on SIGHUP.
type watcher struct {
	file   string
	log    logrus.FieldLogger
	hangup chan os.Signal
	read   func(asked bool) // asked: by the signal
}

// run watches until the context ends. It watches the file's folder, not the file: an
// editor puts another in its place, and so does a ConfigMap's volume with the folder
// that the file is a link into.
func (w *watcher) run(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	if folder, err := w.open(); err != nil {
		w.log.WithError(err).Warn("The configuration is not watched: it is read again on SIGHUP alone")
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
		case <-w.hangup:
			w.read(true)
		case <-events:
			quiet.Reset(settled)
		case err := <-errs: // events may be lost
			w.log.WithError(err).Debug("Watching the configuration")
			quiet.Reset(settled)
		case <-quiet.C:
			w.read(false)
		}
	}
}

func (w *watcher) open() (*fsnotify.Watcher, error) {
	folder, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := folder.Add(filepath.Dir(w.file)); err != nil {
		folder.Close() //nolint:errcheck // nothing was watched
		return nil, err
	}
	return folder, nil
}

// reloader brings the plugin to what its file says.
type reloader struct {
	service *service
	agent   *agent.Agent
	log     *logrus.Logger
	file    string
	seen    string // hash of the text that was read last
}

// reload reads the file, where it has changed or somebody asks.
func (r *reloader) reload(asked bool) {
	text, err := os.ReadFile(r.file)
	if err != nil {
		if r.seen == "" && !asked { // told once
			return
		}
		r.seen = ""
		r.refuse("", fmt.Errorf("%w; the configuration before stays in force", err))
		return
	}
	hash := hashOf(text)
	if hash == r.seen && !asked {
		return
	}
	r.seen = hash
	cfg, err := config.Parse(text)
	if err != nil {
		r.refuse(hash, err)
		return
	}
	restart, err := r.agent.Reconfigure(agent.Reload{Config: cfg, Hash: hash, Adapt: r.service.adapt(r.log)})
	if err != nil {
		r.tell(err)
		return
	}
	log := r.log.WithField("file", r.file)
	if len(restart) > 0 {
		log = log.WithField("restart", strings.Join(restart, " "))
		log.Warn("Configuration reloaded, but for keys that take a restart of Sluice")
		return
	}
	log.Info("Configuration reloaded")
}

func (r *reloader) refuse(hash string, err error) {
	r.agent.RefuseConfig(hash, err)
	r.tell(err)
}

func (r *reloader) tell(err error) {
	r.log.WithField("file", r.file).WithError(err).Error("Configuration refused; the one before stays in force")
}

// adapt changes what runs beside the agent's decisions to a configuration that it takes
// over.
func (s *service) adapt(log *logrus.Logger) func(*config.Config, *agent.Options) {
	return func(c *config.Config, o *agent.Options) {
		if s.logLevel == "" {
			if level, err := logrus.ParseLevel(string(c.Log.Level)); err == nil {
				log.SetLevel(level)
			}
		}
		if o.Sampler == nil {
			return
		}
		o.Evictor = s.evictor(c, log)
		if o.Failsafe == nil && acts(c) {
			o.Failsafe = s.newFailsafe(log)
		}
	}
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// configured says where the configuration comes from.
func configured(file string, text []byte) status.Config {
	c := status.Config{File: file, Loaded: time.Now()}
	if text != nil {
		c.Hash = hashOf(text)
	}
	return c
}

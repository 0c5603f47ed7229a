package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/status"
)

// reloader applies changes of the configuration file, and of the parts that the fleet's policy lays
// over it, to the plugin.
type reloader struct {
	service     *service
	agent       *agent.Agent
	reconfigure func(agent.Reload) (restart []string, err error) // the agent's
	log         *logrus.Logger
	file        string
	state       string // folder with the file of the parts

	mu      sync.Mutex
	hash    string      // hash of the text read last; "" if the file is known to be missing
	refused os.FileInfo // of the file with that text if the text was refused, otherwise nil
	busy    bool        // it was refused because memory was being reclaimed
	base    []byte      // text in force, without the parts
	fleet   fleetParts
	saved   bool          // whether the state folder has them
	again   time.Time     // when refused parts are tried again
	pause   time.Duration // the last one before that
}

// read reads the file and applies it if it has changed, if it was refused and has been saved again,
// or if somebody asked for a reload. Events on other files of its folder change nothing.
func (r *reloader) read(signalled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.file) // before the text: a file that changes in between counts as saved again
	var text []byte
	if err == nil {
		text, err = os.ReadFile(r.file)
	}
	if err != nil {
		if r.hash == "" && !signalled { // log this only once
			return
		}
		r.hash, r.refused, r.busy = "", nil, false
		r.refuse("", fmt.Errorf("%w; the configuration before stays in force", err))
		return
	}
	hash := hashOf(text)
	savedAgain := r.refused != nil && (!os.SameFile(info, r.refused) || !info.ModTime().Equal(r.refused.ModTime()))
	if hash == r.hash && !savedAgain && !signalled {
		return
	}
	r.hash, r.refused = hash, nil
	if err = r.load(text, hash); err != nil {
		r.refused = info
	}
	r.busy = errors.Is(err, agent.ErrMemoryBusy)
}

// retryFile tries the file again if memory was being reclaimed when it was read.
func (r *reloader) retryFile() {
	r.mu.Lock()
	busy := r.busy
	r.mu.Unlock()
	if busy {
		r.read(true)
	}
}

// load applies a text of the configuration. The caller has locked mu.
func (r *reloader) load(text []byte, hash string) error {
	if _, err := config.Parse(text); err != nil {
		r.refuse(hash, err)
		return err
	}
	restart, err := r.apply(text, hash, r.fleet.Wanted, r.fleet.Kubelet)
	if err != nil {
		r.report(err)
		return err
	}
	if err := r.saveParts(); err != nil {
		r.log.WithError(err).Warn("A restart of sluice may forget which parts of the fleet's policy are in force")
	}
	log := r.log.WithField("file", r.file)
	if len(restart) > 0 {
		log = log.WithField("restart", strings.Join(restart, " "))
		log.Warn("Configuration reloaded, but for keys that take a restart of Sluice")
		return nil
	}
	log.Info("Configuration reloaded")
	return nil
}

// diff lists what a text of the configuration would change if it were the file's now, below the
// parts. It changes nothing.
func (r *reloader) diff(text []byte) (*status.ConfigDiff, error) {
	if _, err := config.Parse(text); err != nil {
		return &status.ConfigDiff{Problem: err.Error()}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, cfg, err := r.compose(text, r.fleet.Wanted, r.fleet.Kubelet)
	if err != nil {
		return nil, err
	}
	return r.agent.ConfigDiff(cfg)
}

func (r *reloader) refuse(hash string, err error) {
	r.agent.RefuseConfig(hash, err)
	r.report(err)
}

func (r *reloader) report(err error) {
	r.log.WithField("file", r.file).WithError(err).Error("Configuration refused; the one before stays in force")
}

// adapt returns a function that applies a new configuration to everything outside of the
// agent's decisions.
func (s *service) adapt(log *logrus.Logger) func(*config.Config, *agent.Options) {
	return func(c *config.Config, o *agent.Options) {
		if s.LogLevel == "" {
			if level, err := logrus.ParseLevel(string(c.Log.Level)); err == nil {
				log.SetLevel(level)
			}
		}
		if o.Sampler == nil {
			return
		}
		s.probeCycles(c, o, log)
		s.addEvictors(c, o, log)
		if o.Failsafe == nil && c.LoopActs() {
			o.Failsafe = s.newFailsafe(log)
		}
	}
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// configured describes where the configuration comes from.
func configured(file string, text []byte) status.Config {
	c := status.Config{File: file, LoadedAt: time.Now()}
	if text != nil {
		c.Hash = hashOf(text)
	}
	return c
}

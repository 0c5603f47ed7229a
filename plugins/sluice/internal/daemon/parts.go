package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/overlay"
	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology"
)

// partsFile is the name of the file in the state folder with the fleet's parts.
const partsFile = "fleet-parts.json"

// These are the pauses between two attempts to put a part in force that the node has refused. A
// file for which the node was busy is tried again after the first one each time.
const (
	firstPause = 10 * time.Second
	mostPause  = 10 * time.Minute
)

// fleetParts are the parts of the fleet's policy, and what else sluice-kube says on which the
// configuration depends, as the state folder keeps them.
type fleetParts struct {
	Wanted  []policy.Part       `json:"wanted"`            // that were received last
	Held    []policy.Part       `json:"held"`              // whose texts are in force
	Results []status.ConfigPart `json:"results"`           // of all
	Kubelet string              `json:"kubelet,omitempty"` // the kubelet's version; "" if it is not known
}

// refused reports whether a part is not as it should be, which the end of a pin can change.
func (f *fleetParts) refused() bool {
	return slices.ContainsFunc(f.Results, func(r status.ConfigPart) bool { return r.Problem != "" })
}

// apply applies a text of the configuration with parts over it, for a kubelet of that version. hash
// is that of a text that may have changed, or "". The caller has locked mu.
func (r *reloader) apply(text []byte, hash string, wanted []policy.Part, kubelet string) (restart []string, err error) {
	now, cfg, err := r.compose(text, wanted, kubelet)
	if err != nil {
		return nil, err
	}
	if hash == "" && reflect.DeepEqual(now, r.fleet) {
		return nil, nil
	}
	restart, err = r.reconfigure(agent.Reload{Config: cfg, Hash: hash, Parts: now.Results, Adapt: r.service.adapt(r.log)})
	if err != nil {
		return nil, err
	}
	for _, p := range now.Results {
		if p.Problem != "" && !slices.ContainsFunc(r.fleet.Results, func(old status.ConfigPart) bool { return old.Name == p.Name && old.Problem == p.Problem }) {
			r.log.WithField("part", p.Name).WithField("problem", p.Problem).Warn("A part of the fleet's policy is not in force as it should be")
		}
	}
	r.saved = r.saved && reflect.DeepEqual(now, r.fleet)
	r.base, r.fleet = text, now
	return restart, nil
}

// compose returns the configuration of a text with parts over it, for a kubelet of that version.
func (r *reloader) compose(text []byte, wanted []policy.Part, kubelet string) (now fleetParts, cfg *config.Config, err error) {
	pulse, err := r.agent.Pulse()
	if err != nil {
		return now, nil, err
	}
	if now, cfg, err = r.merge(text, wanted, pulse.Synced, r.accepts); err != nil {
		return now, nil, err
	}
	now.Kubelet = kubelet
	fit(cfg, kubelet)
	return now, cfg, nil
}

// accepts is the agent's answer, with the keys whose values are not in force before a restart. A
// control loop that needs a restart to begin has nothing of control in force.
func (r *reloader) accepts(c *config.Config) (inert []string, err error) {
	inert, err = r.agent.Accepts(c)
	if slices.Contains(inert, "control.mode") {
		inert = append(inert, "control")
	}
	return inert, err
}

// merge lays the parts over a text of the configuration. Before the runtime has sent its
// containers, no pin is known that a part could move: until then only what was in force counts.
func (r *reloader) merge(text []byte, wanted []policy.Part, synced bool, accepts func(*config.Config) ([]string, error)) (now fleetParts, cfg *config.Config, err error) {
	own, err := config.Document(text)
	if err != nil {
		return now, nil, err
	}
	node := overlay.Node{Own: own, Allowed: r.service.FleetKeys, Accepts: accepts}
	held := r.fleet.Held
	if !synced {
		held, wanted = nil, held
	}
	merged, err := node.Merge(held, wanted)
	if err != nil {
		return now, nil, err
	}
	now = fleetParts{Wanted: wanted, Held: merged.Held, Results: merged.Parts}
	if synced {
		return now, merged.Config, nil
	}
	now.Wanted = r.fleet.Wanted
	for _, old := range r.fleet.Results {
		i := slices.IndexFunc(now.Results, func(p status.ConfigPart) bool { return p.Name == old.Name })
		switch {
		case old.Problem == "":
		case i < 0:
			now.Results = append(now.Results, old)
		default:
			now.Results[i].Problem = old.Problem
		}
	}
	return now, merged.Config, nil
}

// setParts applies the parts of the fleet's policy, and saves them for the next start. An error
// means that the parts before stay in force, or that the new ones are and are not saved.
func (r *reloader) setParts(parts []policy.Part) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(parts, r.fleet.Wanted) {
		pulse, err := r.agent.Pulse()
		if err == nil && !pulse.Synced {
			err = errors.New("the container runtime has not yet sent its containers, whose CPUs the parts could move: send them again later")
		}
		if err == nil {
			_, err = r.apply(r.base, "", parts, r.fleet.Kubelet)
		}
		if err != nil {
			return fmt.Errorf("the fleet's policy before stays in force: %w", err)
		}
		r.log.WithField("parts", len(parts)).Info("The fleet's policy has changed")
		r.again, r.pause = time.Now().Add(firstPause), firstPause
	}
	if err := r.saveParts(); err != nil {
		return fmt.Errorf("the fleet's policy is in force, but a restart of sluice may forget it: %w", err)
	}
	return nil
}

// retryRefused tries to put in force the parts that the node has refused, and a file for which it was
// busy, until the context ends.
func (r *reloader) retryRefused(ctx context.Context) {
	ticker := time.NewTicker(firstPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.retry(now)
			r.retryFile()
		}
	}
}

// retry tries the parts once if it is time. Each attempt that changes nothing doubles the pause.
func (r *reloader) retry(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fleet.refused() || now.Before(r.again) {
		return
	}
	if pulse, err := r.agent.Pulse(); err != nil || !pulse.Synced {
		return
	}
	r.pause = min(max(2*r.pause, firstPause), mostPause)
	r.again = now.Add(r.pause)
	_, err := r.apply(r.base, "", r.fleet.Wanted, r.fleet.Kubelet)
	if err == nil {
		err = r.saveParts()
	}
	if err != nil {
		r.log.WithError(err).Warn("Parts of the fleet's policy can't be tried again")
	}
}

// saveParts writes the parts to the state folder unless it has them.
func (r *reloader) saveParts() error {
	if r.saved {
		return nil
	}
	name := filepath.Join(r.state, partsFile)
	if len(r.fleet.Wanted)+len(r.fleet.Held) == 0 && r.fleet.Kubelet == "" {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.saved = true
		return nil
	}
	text, err := json.Marshal(r.fleet)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	r.saved = true
	return nil
}

// restoreParts returns the configuration to start with: over the node's own lie the parts that were
// in force before. If that fails, there are none until sluice-kube has sent them.
func (r *reloader) restoreParts(own *config.Config, machine *topology.Machine) *config.Config {
	if r.service.KubeSocket == "" {
		return own
	}
	text, err := os.ReadFile(filepath.Join(r.state, partsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return own
	}
	cfg := own
	if err == nil {
		err = json.Unmarshal(text, &r.fleet)
	}
	if err == nil {
		fits := func(c *config.Config) ([]string, error) { _, err := c.Fit(machine); return nil, err }
		kubelet := r.fleet.Kubelet
		r.fleet, cfg, err = r.merge(r.base, nil, false, fits)
		r.fleet.Kubelet = kubelet
	}
	if err != nil {
		r.fleet = fleetParts{}
		r.log.WithError(err).Error("The fleet's policy of before the start is not in force: sluice-kube sends it again")
		return own
	}
	r.saved = true
	fit(cfg, r.fleet.Kubelet)
	return cfg
}

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/pkg/irq"
	"github.com/sluice-dev/sluice/pkg/plan"
)

// checkpoint holds only what neither the runtime nor the kernel knows: the
// original values of what Sluice has changed, and which containers it has set.
type checkpoint struct {
	Version    int                            `json:"version"`
	Pods       podQuotas                      `json:"pods"`
	Containers map[string]containerCheckpoint `json:"containers"`
	Affinities irq.Kept                       `json:"affinities,omitempty"`
}

type containerCheckpoint struct {
	Quota plan.CPUQuota `json:"quota"`
}

const checkpointVersion = 1

// sealed is a checkpoint as it lies on disk.
type sealed struct {
	SHA256 string          `json:"sha256"`
	State  json.RawMessage `json:"state"`
}

// save writes the checkpoint outside the loop and then runs done in it.
func (a *Agent) save(done func()) {
	state := a.checkpoint()
	written := slices.Collect(maps.Values(a.pods))
	a.saves++
	number := a.saves
	go func() {
		err := a.disk.write(a.Checkpoint, number, state)
		a.post("checkpoint", func() {
			if err != nil {
				a.dirty = true
				a.Log.WithError(err).Error("Checkpoint not written: pod quotas stay as they are until it can be")
				return
			}
			for _, q := range written {
				q.saved = true
			}
			if done != nil {
				done()
			}
		})
	}()
}

func (a *Agent) checkpoint() checkpoint {
	state := checkpoint{Version: checkpointVersion, Pods: podQuotas{}, Containers: map[string]containerCheckpoint{}, Affinities: a.steering.kept}
	for uid, q := range a.pods {
		copied := *q
		state.Pods[uid] = &copied
	}
	for id, c := range a.containers {
		if c.touched || c.has.Unlimited {
			state.Containers[id] = containerCheckpoint{Quota: c.quota}
		}
	}
	return state
}

// leave saves what the next run must know. Containers keep what they have: a
// restart moves nothing.
func (a *Agent) leave() {
	a.saves++
	if err := a.disk.write(a.Checkpoint, a.saves, a.checkpoint()); err != nil {
		a.Log.WithError(err).Error("Checkpoint not written")
	}
}

// load reads the checkpoint; one that is lost or corrupt costs only originals.
func (a *Agent) load() {
	state, err := readCheckpoint(a.Checkpoint)
	if err != nil {
		a.Log.WithError(err).Warn("Checkpoint not read: quotas that an earlier run lifted, and IRQs that it steered, can't be given back")
		return
	}
	for uid, q := range state.Pods {
		q.saved = true
		a.pods[uid] = q
	}
	a.recalled = state.Containers
	a.steering.kept = state.Affinities
}

// recall tells a found container what was done to it: on an earlier connection
// of this run, or in the run before.
func (a *Agent) recall(c, before *container) {
	if before != nil {
		c.touched, c.quota, c.drift = before.touched, before.quota, before.drift
	} else if was, ok := a.recalled[c.ID]; ok {
		c.touched, c.quota = true, was.Quota
	}
}

// disk writes checkpoints one after another and never an older one over a newer.
type disk struct {
	mu     sync.Mutex
	latest uint64
}

func (d *disk) write(file string, number uint64, state checkpoint) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if number < d.latest {
		return nil
	}
	if err := writeCheckpoint(file, state); err != nil {
		return err
	}
	d.latest = number
	return nil
}

func writeCheckpoint(file string, state checkpoint) error {
	if file == "" {
		return nil
	}
	raw, err := json.Marshal(state)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	data, err := json.Marshal(sealed{SHA256: hex.EncodeToString(sum[:]), State: raw})
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".checkpoint-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it is renamed away where all went well
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func readCheckpoint(file string) (checkpoint, error) {
	var state checkpoint
	if file == "" {
		return state, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return state, fmt.Errorf("%s: %w", file, err)
	}
	if sum := sha256.Sum256(s.State); s.SHA256 != hex.EncodeToString(sum[:]) {
		return state, fmt.Errorf("%s: checksum does not match", file)
	}
	if err := json.Unmarshal(s.State, &state); err != nil {
		return state, fmt.Errorf("%s: %w", file, err)
	}
	if state.Version != checkpointVersion {
		return checkpoint{}, fmt.Errorf("%s: version %d, this Sluice knows %d", file, state.Version, checkpointVersion)
	}
	return state, nil
}

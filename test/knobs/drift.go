package knobs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
)

// Drift writes back the old text of every file that Sluice has set, as another writer would: all
// files of one name at once. Each is repaired once, and counted. The duration is logged and not
// checked, because the machine may be busy.
func Drift(t *testing.T, b *Bed) {
	pods, before, after := b.adopted(t)
	repairs := b.status(t).Counters.Drift
	rounds := map[string][]string{}
	for _, file := range after.Changed(before) {
		if !follows(file) {
			rounds[filepath.Base(file)] = append(rounds[filepath.Base(file)], file)
		}
	}
	written, within, longest := 0, 0, time.Duration(0)
	settings := map[string]bool{} // those of both levels of a nested container count as one
	for _, name := range slices.Sorted(maps.Keys(rounds)) {
		began, files := time.Now(), rounds[name]
		for _, file := range files {
			if err := put(file, before[file]); err != nil {
				t.Errorf("another writer can't put %s back to %q: %v", file, before[file], err)
				continue
			}
			written++
			settings[runtime.Own(file)] = true
		}
		for _, file := range files {
			await(t, func() error {
				now, err := os.ReadFile(file)
				if text := strings.TrimSpace(string(now)); err == nil && text != after[file] {
					err = fmt.Errorf("%s is %q, want %q", file, text, after[file])
				}
				return err
			})
		}
		took := time.Since(began)
		longest = max(longest, took)
		if took <= time.Second {
			within++
		}
		t.Logf("%d of %s: repaired after %s", len(files), name, took.Round(time.Millisecond))
	}
	now := b.settled(t)
	if changed := after.Differences(now); len(changed) > 0 {
		t.Errorf("the repairs left changed: %q", changed)
	}
	t.Logf("%d files in %d rounds were put back; %d rounds were repaired within a second, the longest after %s", written, len(rounds), within, longest.Round(time.Millisecond))
	if got := b.status(t).Counters.Drift - repairs; got < len(settings) || got > written {
		t.Errorf("%d repairs are counted, want %d, and at most %d", got, len(settings), written)
	}
	t.Run("two writers", func(t *testing.T) { b.fight(t) })
	b.ends(t, pods)
}

// follows reports whether the kernel derives the file's text from that of another: v2's nice value
// from a weight, and the weight of an idle group, which can't be written.
func follows(file string) bool {
	name := filepath.Base(file)
	if name == "cpu.weight.nice" {
		return true
	}
	idle, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cpu.idle"))
	return (name == "cpu.shares" || name == "cpu.weight") && err == nil && strings.TrimSpace(string(idle)) == "1"
}

// put writes a file's text as in a dump.
func put(file, text string) error {
	file = strings.TrimSuffix(file, ".effective")
	name := filepath.Base(file)
	if name == "io.bfq.weight" {
		text = strings.TrimPrefix(text, "default ") // the number of a device follows it
	}
	lines := strings.Split(text, "\n")
	if strings.HasPrefix(name, "io.") || strings.HasPrefix(name, "blkio.") {
		// A device's line is removed by a line of its own without limits.
		now, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
		for line := range strings.Lines(string(now)) {
			device, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.Contains(device, ":") || strings.Contains(text, device) {
				continue
			}
			reset := device + " 0"
			if name == "io.max" {
				reset = device + " rbps=max wbps=max riops=max wiops=max"
			}
			lines = append(lines, reset)
		}
	}
	for _, line := range lines {
		if err := os.WriteFile(file, []byte(line), 0); err != nil {
			return err
		}
	}
	return nil
}

// fight takes back a container's burst as often as it is repaired, as another writer would, until
// Sluice pauses its repairs and says so.
func (b *Bed) fight(t *testing.T) {
	file, mine := "cpu.cfs_burst_us", "0"
	if b.RT.V2() {
		file = "cpu.max.burst"
	}
	c := b.run(t, pod("fought-over", limited(100, 1000), class, "LS", burst, "100%"))
	defer func() { must(t, c.Remove()) }()
	const rounds, alone = 30, 10 * pass
	for round := range rounds {
		began := time.Now()
		for says(c.Container("c").File, file, mine) == nil {
			if waited := time.Since(began); waited > alone { // or the machine is too busy for a pass
				text, err := b.Sluice.Explain("kube-system/fought-over")
				must(t, err)
				err = contains(text, file, "somebody else")
				if err == nil {
					t.Logf("left alone after %d repairs", round)
					return
				}
				if waited > 20*alone {
					t.Fatalf("neither repaired nor left alone after %d repairs: %v", round, err)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		must(t, c.Container("c").WriteFile(file, mine))
	}
	t.Errorf("two writers have fought %d rounds without an end", rounds)
}

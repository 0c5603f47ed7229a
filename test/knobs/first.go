package knobs

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/sluice-dev/sluice/test/probe/sight"
	"github.com/sluice-dev/sluice/test/runtime"
)

// files holds the texts of a cgroup's files.
type files map[string]string

// seen holds the files by their owner: a container's name, podLevel or classLevel.
type seen map[string]files

const (
	podLevel   = "pod"
	classLevel = "class"
)

// row is a pod, and what the kernel shows at the first instruction of its last container. A file
// that a version of cgroups lacks is missing in its column.
type row struct {
	name     string
	spec     runtime.PodSpec
	v1, v2   seen
	oomScore int // of the last container; 0 if it isn't checked
}

// First runs the table of every knob, or the named rows of it. It checks what each container has
// at its first instruction, and that the end of a pod leaves its class' cgroup as it was.
func First(t *testing.T, b *Bed, names ...string) {
	rows := b.rows(t)
	if len(names) > 0 {
		all := rows
		rows = nil
		for _, name := range names {
			rows = append(rows, rowNamed(t, all, name))
		}
	}
	for _, r := range rows {
		if r.spec.Slices && !b.RT.TakesSlices() {
			continue
		}
		t.Run(r.name, func(t *testing.T) { r.run(t, b) })
	}
}

func (r row) run(t *testing.T, b *Bed) {
	class, err := b.RT.ClassSettings()
	must(t, err)
	pod := b.run(t, r.spec)
	want := r.v1
	if b.RT.V2() {
		want = r.v2
	}
	var last sight.First
	for _, spec := range r.spec.Containers {
		c := pod.Container(spec.Name)
		last, err = c.First()
		must(t, err)
		if c.Nested() {
			must(t, ranks(c, last.Files))
		}
		check(t, spec.Name, last.Files, want[spec.Name])
	}
	uneven, err := b.RT.Uneven()
	must(t, err)
	for _, limit := range uneven {
		t.Errorf("container %s", limit)
	}
	check(t, podLevel, last.Pod, want[podLevel])
	check(t, classLevel, last.Class, want[classLevel])
	if r.oomScore != 0 && last.OOMScore != r.oomScore {
		t.Errorf("the container's oom_score_adj is %d, want %d", last.OOMScore, r.oomScore)
	}
	must(t, pod.Remove())
	await(t, func() error {
		after, err := b.RT.ClassSettings()
		if changed := class.Changed(after); err == nil && len(changed) > 0 {
			err = fmt.Errorf("the pod is gone, and the cgroups above it still have other values in %q", changed)
		}
		return err
	})
}

// ranks replaces the weights that a nested container sees, which are those of its inner cgroup, by
// those that rank it among its siblings.
func ranks(c *runtime.Container, files files) error {
	for _, file := range []string{"cpu.weight", "cpu.idle", "io.weight", "io.bfq.weight", "io.max"} {
		text, err := c.File(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			files[file] = text
		}
	}
	return nil
}

func check(t *testing.T, level string, got, want files) {
	t.Helper()
	for file, value := range want {
		if text, there := got[file]; !there || !is(text, value) {
			t.Errorf("%s: %s is %q at the first instruction, want %q", level, file, text, value)
		}
	}
}

// Missing requests what this kernel lacks: a container that asks for it runs and gets a warning,
// and one that requires it fails.
func Missing(t *testing.T, b *Bed) {
	for key, value := range map[string]string{"core-sched": "group"} {
		t.Run(key, func(t *testing.T) {
			spec := pod(key, runtime.Resources{CPURequest: 100}, "class.sluice.dev", "LS", key+".sluice.dev", value)
			running := b.run(t, spec)
			text, err := b.Sluice.Explain("kube-system/" + spec.Name)
			must(t, err)
			if err := contains(text, key); err != nil {
				t.Errorf("explain: %v", err)
			}
			must(t, running.Remove())

			spec.Annotations["required.sluice.dev"] = key
			refused, err := b.RT.RunPod(spec)
			must(t, err)
			_, err = refused.Create(spec.Containers[0])
			if err == nil {
				err = errors.New("created")
			}
			if missing := contains(err.Error(), key); missing != nil {
				t.Errorf("a container that requires %s is refused with: %v", key, missing)
			}
			must(t, refused.Remove())
		})
	}
}

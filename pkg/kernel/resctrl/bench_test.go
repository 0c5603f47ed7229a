package resctrl

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
)

const threads = 32

// plain is a host over plain files, whose process 5 has threads.
func plain(b *testing.B) (h *Host, root string) {
	b.Helper()
	root = b.TempDir()
	err := os.Mkdir(filepath.Join(root, "sluice-BE"), 0o755)
	err = errors.Join(err, os.WriteFile(filepath.Join(root, "sluice-BE/tasks"), nil, 0o644))
	for tid := range threads {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, "5/task", strconv.Itoa(5+tid)), 0o755))
	}
	dir, openErr := os.OpenRoot(root)
	if err = errors.Join(err, openErr); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dir.Close() })
	return &Host{tree: folder{dir}, proc: folder{dir}}, root
}

func BenchmarkAssign(b *testing.B) {
	h, _ := plain(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Assign(Place{Group: "sluice-BE"}, 5); err != nil {
			b.Fatal(err)
		}
	}
}

// The same: threads listed twice, each written once to the same open file.
func BenchmarkAssignPlain(b *testing.B) {
	_, root := plain(b)
	b.ReportAllocs()
	for b.Loop() {
		names, err := os.ReadDir(filepath.Join(root, "5/task"))
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(root, "sluice-BE/tasks"), os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range names {
			if _, err := f.WriteString(name.Name()); err != nil {
				b.Fatal(err)
			}
		}
		f.Close()
		if _, err := os.ReadDir(filepath.Join(root, "5/task")); err != nil {
			b.Fatal(err)
		}
	}
}

// A change of a class, without the kernel's part.
func BenchmarkSetup(b *testing.B) {
	k := fake.New(fake.AMD())
	h, err := New(k, fake.Proc{Kernel: k}, false)
	if err != nil {
		b.Fatal(err)
	}
	classes := [][]schemata.Class{{{Name: "BE", L3: l3(0, 30), MB: rate(5000)}}, {{Name: "BE", L3: l3(0, 50), MB: rate(8000)}}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := h.Setup(classes[i%2], 0); err != nil {
			b.Fatal(err)
		}
		k.Writes()
	}
}

package procfs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGauges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"proc/loadavg": "1.25 0.80 0.50 2/345 6789\n", "var/lib/kubelet/x": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if load, err := f.Load(); load != 1.25 || err != nil {
		t.Errorf("load %v, %v", load, err)
	}
	f.findDisks()
	if used, err := f.Disk(); used <= 0 || used > 1 || err != nil {
		t.Errorf("disk %v, %v", used, err)
	}
}

func FuzzParseLoad(f *testing.F) {
	f.Add([]byte("0.00 0.01 0.05 1/123 456\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if tasks, err := parseLoad(text); err == nil && !(tasks >= 0 && tasks < 1e19) {
			t.Errorf("%v", tasks)
		}
	})
}

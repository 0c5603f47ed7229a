package forecaststate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
)

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if set, err := Read(dir); set != nil || err != nil {
		t.Fatalf("an empty folder: %v, %v", set, err)
	}
	set := predict.NewSet(predict.DefaultConfig())
	for i := range 10 {
		set.Add(time.Unix(int64(i)*60, 0), predict.Key{Name: "a"}, 3)
	}
	if err := Write(dir, set.Encode()); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil || !read.Has(predict.Key{Name: "a"}) {
		t.Fatalf("%v, %v", read, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("the folder has %v", left)
	}
	info, err := os.Stat(filepath.Join(dir, File))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for content, want := range map[string]string{"": "no saved forecast", strings.Repeat("x", maxFile+1): "more than", string(set.Encode()[:60]): "checksum"} {
		if err := Write(dir, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if set, err := Read(dir); set != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%.20q: %v, error %v, want %q", content, set, err, want)
		}
	}
}

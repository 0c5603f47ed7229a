package watermark

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func tree(t *testing.T, files map[string]string) (*Host, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc/sys/vm"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, root
}

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files    map[string]string
		read, to Values
		want     Values
	}{
		"both":                 {map[string]string{scaleFile: "10\n", minFile: "67584\n"}, Values{10, 67584}, Values{150, 251658}, Values{150, 251658}},
		"back":                 {map[string]string{scaleFile: "150\n", minFile: "251658\n"}, Values{150, 251658}, Values{100, 675840}, Values{100, 675840}},
		"without scale factor": {map[string]string{minFile: "67584\n"}, Values{0, 67584}, Values{0, 251658}, Values{0, 251658}},
		"none":                 {nil, Values{}, Values{}, Values{}},
	} {
		h, _ := tree(t, test.files)
		if got, err := h.Read(); err != nil || got != test.read {
			t.Errorf("%s: read %+v, %v", name, got, err)
		}
		if got, err := h.Write(test.to); err != nil || got != test.want {
			t.Errorf("%s: wrote %+v, %v", name, got, err)
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		found, to Values
		want      []string
	}{
		{Values{10, 100}, Values{150, 200}, []string{scaleFile, minFile}},
		{Values{150, 200}, Values{10, 100}, []string{minFile, scaleFile}},
		{Values{150, 200}, Values{150, 100}, []string{minFile}},
		{Values{150, 200}, Values{150, 200}, nil},
		{Values{0, 200}, Values{0, 300}, []string{minFile}},
	} {
		var got []string
		for _, s := range settings(test.found, test.to) {
			got = append(got, s.file)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v to %+v writes %v, want %v", test.found, test.to, got, test.want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	h, root := tree(t, map[string]string{scaleFile: "ten\n", minFile: "67584\n"})
	if got, err := h.Read(); err == nil || got.MinFreeKB != 67584 || !strings.Contains(err.Error(), `"ten\n"`) {
		t.Errorf("read %+v, %v", got, err)
	}
	if got, err := h.Write(Values{20, 70000}); err == nil || got.MinFreeKB != 67584 {
		t.Errorf("wrote %+v, %v beside what can't be read", got, err)
	}
	if err := os.Remove(filepath.Join(root, scaleFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/oom_score_adj", filepath.Join(root, scaleFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Read(); err == nil {
		t.Error("a link led out of the root")
	}
	if _, err := Open(filepath.Join(root, "absent")); err == nil {
		t.Error("opened what is not there")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"10\n", "67584", "", "-1", "10\t20", "99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if value, err := parse("file", text); err == nil && value < 0 || err != nil && value != 0 {
			t.Errorf("%q: %d, %v", text, value, err)
		}
	})
}

// On the real kernel, the test writes the values that it finds.
func TestKernel(t *testing.T) {
	t.Parallel()
	h, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	found, err := h.Read()
	if err != nil || found == (Values{}) {
		t.Skipf("SKIPPED, this machine's watermarks can't be read: %+v, %v", found, err)
	}
	for _, s := range settings(Values{}, found) {
		err = errors.Join(err, h.write(s))
	}
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		t.Skipf("SKIPPED, this machine's watermarks can't be written: %v", err)
	}
	if now, readErr := h.Read(); err != nil || readErr != nil || now != found {
		t.Errorf("wrote %+v, %v; in force %+v, %v", found, err, now, readErr)
	}
	if now, err := h.Write(Values{ScaleFactor: 1 << 40}); !errors.Is(err, syscall.EINVAL) || now != found || !strings.Contains(err.Error(), "watermark_scale_factor") {
		t.Errorf("a scale factor out of range: %+v, %v", now, err)
	}
}

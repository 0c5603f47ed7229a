package live

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/top"
)

// still is a node that is the same in each reading.
type still struct{ err error }

func (s still) Read(context.Context) (top.State, error) {
	return top.State{Status: statustest.Looped()}, s.err
}

// If the output is no terminal, it is one frame of text with the width of COLUMNS.
func TestShowsOneFrame(t *testing.T) {
	for columns, width := range map[string]int{"": usualWidth, "120": 120, "none": usualWidth, "-5": usualWidth} {
		t.Setenv("COLUMNS", columns)
		for _, once := range []bool{false, true} {
			var out, want bytes.Buffer
			if err := Show(t.Context(), &out, still{}, time.Second, once, top.Options{}); err != nil {
				t.Error(err)
			}
			want.WriteString(top.Render(top.State{Status: statustest.Looped()}, top.Options{Width: width}) + "\n")
			if out.String() != want.String() || strings.Contains(out.String(), "\x1b[") {
				t.Errorf("COLUMNS=%q: it shows\n%s", columns, out.String())
			}
		}
	}
	if err := Show(t.Context(), &bytes.Buffer{}, still{errors.New("no answer")}, time.Second, false, top.Options{}); err == nil {
		t.Error("without an answer it shows something")
	}
}

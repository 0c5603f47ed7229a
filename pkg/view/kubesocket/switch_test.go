package kubesocket

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
)

// The socket takes a switch over at once, says what is wrong with another, and tells when a restart
// would forget it.
func TestSwitchOverTheSocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	fleet, err := batchswitch.OpenFleet(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, lines := logtest.NewNullLogger()
	h := handler(source{}, kubelink.New(), &Options{Log: log, Fleet: fleet})
	for i, step := range []struct {
		body string
		code int
		text string // part of the answer
		to   control.SwitchState
		log  string // part of the one new line in the log; "" for none
	}{
		{`{"state":"off"}`, http.StatusInternalServerError, "is in force, but a restart of sluice may forget it", control.SwitchOff, "may forget it"},
		{`{"state":"off"}`, http.StatusInternalServerError, "is in force", control.SwitchOff, ""},
		{`mkdir`, http.StatusBadRequest, "is not the JSON", control.SwitchOff, ""},
		{`{"state":"off"}`, http.StatusOK, "", control.SwitchOff, ""},
		{`{"state":"of"}`, http.StatusBadRequest, "must be auto, on or off", control.SwitchOff, ""},
		{`{"state":"on","evict":true}`, http.StatusBadRequest, "evict: it goes with the state off alone", control.SwitchOff, ""},
		{`{"state":"auto","problem":"of is no state"}`, http.StatusOK, "", control.SwitchOff, "stays as it was"},
		{`{"state":"on"}`, http.StatusOK, "", control.SwitchOn, "has changed"},
		{`{"state":"on"}`, http.StatusOK, "", control.SwitchOn, ""},
		{strings.Repeat("x", 5<<10), http.StatusRequestEntityTooLarge, "at most 4096 bytes", control.SwitchOn, ""},
	} {
		if step.body == "mkdir" {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		lines.Reset()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, SwitchPath, strings.NewReader(step.body)))
		if w.Code != step.code || !strings.Contains(w.Body.String(), step.text) || fleet.Switch().State != step.to {
			t.Errorf("%d: %.40s: %d %s, switched to %q", i, step.body, w.Code, w.Body, fleet.Switch().State)
		}
		if last := lines.LastEntry(); (last != nil) != (step.log != "") || last != nil && !strings.Contains(last.Message, step.log) {
			t.Errorf("%d: %.40s: the log has %+v", i, step.body, last)
		}
	}
}

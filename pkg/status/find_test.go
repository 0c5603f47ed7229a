package status_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

func TestFind(t *testing.T) {
	t.Parallel()
	containers := statustest.Calm().Containers
	for name, want := range map[string]string{
		"data/db-0":       "data/db-0/main data/db-0/proxy",
		"data/db-0/proxy": "data/db-0/proxy",
		"db-0/proxy":      "data/db-0/proxy",
		"db-1":            "data/db-1/main",
		"4f1c2a9":         "data/db-0/main data/db-0/proxy",
		"6":               "batch/db-0/main",
		"db-0":            `"db-0" may mean any of batch/db-0, data/db-0: name one of them`,
		"db-0/main":       `"db-0/main" may mean any of batch/db-0, data/db-0: name one of them`,
		"main":            `no container on this node is named "main" or has an id that begins so; 'sluice status' lists them`,
		"":                `no container on this node is named "" or has an id that begins so; 'sluice status' lists them`,
	} {
		found, err := status.Find(containers, name)
		var got []string
		for _, c := range found {
			got = append(got, c.Ref)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%q: %s, want %s", name, text, want)
		}
	}
}

func TestFindListsAFewPods(t *testing.T) {
	t.Parallel()
	var containers []status.Container
	for i := range 30 {
		containers = append(containers, status.Container{Ref: string(rune('a'+i)) + "/p/c"})
	}
	_, err := status.Find(containers, "p")
	if err == nil || !strings.Contains(err.Error(), "t/p and 10 more") {
		t.Error(err)
	}
}

func TestStatusComesBackFromJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(statustest.Looped())
	if err != nil {
		t.Fatal(err)
	}
	var back status.Status
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&back)
	if err != nil || string(again) != string(text) {
		t.Errorf("%v\ngot  %s\nwant %s", err, again, text)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	containers := []status.Container{{Ref: "data/db-0/main"}, {Ref: "data/db-0/proxy"}, {Ref: "web/a/b"}, {Ref: "web/$(reboot)/b"}, {Ref: "-rf/a/b"}}
	for begun, want := range map[string]string{
		"":                "data/db-0 web/a",
		"d":               "data/db-0",
		"data/db-0":       "data/db-0",
		"data/db-0/":      "data/db-0/main data/db-0/proxy",
		"data/db-0/p":     "data/db-0/proxy",
		"web/$(":          "",
		"-":               "",
		"nowhere/nothing": "",
	} {
		if got := strings.Join(status.Complete(containers, begun), " "); got != want {
			t.Errorf("%q completes to %q, want %q", begun, got, want)
		}
	}
}

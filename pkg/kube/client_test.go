package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pages serves 250 nodes in pages of the asked size, to those who ask for metadata alone. A
// continuation is the number of the next node.
func pages(w http.ResponseWriter, r *http.Request) {
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil || limit > 100 || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		http.Error(w, "it asks for too much", http.StatusTeapot)
		return
	}
	const all = 250
	from, err := strconv.Atoi(r.FormValue("continue"))
	if err != nil && r.FormValue("continue") != "" {
		http.Error(w, err.Error(), http.StatusGone)
		return
	}
	var items []string
	for i := from; i < min(from+limit, all); i++ {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i))
	}
	next := ""
	if from+limit < all {
		next = strconv.Itoa(from + limit)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":%q},"items":[%s]}`, next, strings.Join(items, ","))
}

func TestNodes(t *testing.T) {
	t.Parallel()
	names, err := clientOf(t, http.HandlerFunc(pages)).Nodes(t.Context())
	if err != nil || len(names) != 250 || names[0] != "n0" || names[249] != "n249" || len(slices.Compact(slices.Clone(names))) != 250 {
		t.Errorf("%d nodes %q, %v", len(names), names, err)
	}
	for name, test := range map[string]struct {
		reply func(http.ResponseWriter)
		says  string
	}{
		"forbidden":       {says(403, "", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no right"}`), "no right"},
		"no JSON":         {says(200, "", `<html>`), "not the JSON"},
		"a page for ever": {says(200, "", `{"metadata":{"continue":"x"}}`), "repeats a page"},
	} {
		client := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { test.reply(w) }))
		if names, err := client.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %q, %v; want %q", name, names, err, test.says)
		}
	}
}

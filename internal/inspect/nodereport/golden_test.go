package nodereport_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// golden are the texts of all situations, as an operator reads them. UPDATE=1 writes them.
const golden = "testdata/situations.txtar"

func TestGoldenTexts(t *testing.T) {
	var got txtar.Archive
	got.Comment = []byte("What dovetail explain node prints for each planted situation. UPDATE=1 go test writes this file.\n")
	for _, s := range situations() {
		w := lone()
		s.plant(w)
		var b bytes.Buffer
		if err := explained(t, w).Text(&b, 80); err != nil {
			t.Fatal(err)
		}
		got.Files = append(got.Files, txtar.File{Name: s.name, Data: b.Bytes()})
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, txtar.Format(&got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := txtar.ParseFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got.Files {
		i := slices.IndexFunc(want.Files, func(o txtar.File) bool { return o.Name == f.Name })
		if i < 0 {
			t.Errorf("%s has no text in %s", f.Name, golden)
			continue
		}
		if diff := cmp.Diff(string(want.Files[i].Data), string(f.Data)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Name, diff)
		}
	}
	if len(want.Files) != len(got.Files) {
		t.Errorf("%d texts, and %d situations", len(want.Files), len(got.Files))
	}
}

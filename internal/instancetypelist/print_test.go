package instancetypelist

import (
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// Why a type is unavailable is a column where there is room, and else on lines of its own.
func TestReasonsFitANarrowTerminal(t *testing.T) {
	entry := func(name, why string) Entry {
		return Entry{InstanceType: enginetest.Type(name, 0.1, "cpu", "2", "memory", "4Gi"), Why: why}
	}
	long := "the NodePool requires karpenter.k8s.aws/instance-category in (c, m, r), karpenter.k8s.aws/instance-generation > 2"
	r := Report{Entries: []Entry{entry("m.large", ""), entry("t.large", long)}, Prices: "the tests"}
	print := func(width int) string {
		var out strings.Builder
		if err := r.Table(&out, width); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	narrow, unlimited := print(80), print(0)
	for line := range strings.Lines(narrow) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if strings.Contains(narrow, "UNAVAILABLE") || !strings.Contains(narrow, "\n  the NodePool requires karpenter.k8s.aws/instance-category in (c, m, r),\n") {
		t.Errorf("with 80 columns:\n%s", narrow)
	}
	if !strings.Contains(unlimited, "UNAVAILABLE\n") || !strings.Contains(unlimited, long) || unlimited != print(300) {
		t.Errorf("without a limit:\n%s", unlimited)
	}
	if !strings.HasSuffix(narrow, "\nPrices: the tests\n") {
		t.Errorf("it does not name the source of prices:\n%s", narrow)
	}
	r.Entries = []Entry{{InstanceType: &catalog.InstanceType{Name: "x"}}}
	if got := print(10); !strings.HasPrefix(got, "TYPE") || strings.Contains(got, "UNAVAILABLE") {
		t.Errorf("without reasons:\n%s", got)
	}
}

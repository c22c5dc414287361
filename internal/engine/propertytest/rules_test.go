package propertytest

import (
	"encoding/json"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// ruleWorlds sets how many worlds give reasons.
const ruleWorlds = 600

// wordless are codes that may come without a rule.
var wordless = map[rejection.Code]bool{
	rejection.NoPools: true, rejection.NotManaged: true, rejection.Reserved: true, rejection.Limits: true, rejection.MinValues: true,
	rejection.Offering: true, rejection.DeviceClaims: true, rejection.Topology: true, rejection.HostPort: true,
}

// A program that reads the JSON of a rule knows all that the sentence states.
func TestSentencesOfRejectionsAreMadeOfTheirJSON(t *testing.T) {
	fields := map[string]int{}
	for seed := range uint64(ruleWorlds) {
		d := seeded(seed)
		s, budget := d.anyWorld(), d.budget()
		p := schedule.Solve(s, budget)
		reasons := p.UnusablePools
		for i := range p.Rejected {
			reasons = append(reasons, p.Rejected[i].Reasons...)
		}
		for _, r := range reasons {
			checkRule(t, seed, r, fields)
		}
	}
	if len(fields) < 8 {
		t.Errorf("the worlds give only rules of %v", fields)
	}
}

// checkRule compares the sentence of a reason with that of the reason after a way through JSON, and counts the fields of rules.
func checkRule(t *testing.T, seed uint64, r rejection.Reason, fields map[string]int) {
	t.Helper()
	if r.Rule == nil {
		if !wordless[r.Code] {
			t.Errorf("world %d: a reason of code %s without data", seed, r.Code)
		}
		return
	}
	data, err := json.Marshal(r.Rule)
	if err != nil {
		t.Fatalf("world %d: %v", seed, err)
	}
	names := map[string]any{}
	read := r
	read.Rule = &rejection.Rule{}
	if err := json.Unmarshal(data, read.Rule); err != nil {
		t.Fatalf("world %d: %v", seed, err)
	}
	if err := json.Unmarshal(data, &names); err != nil || len(names) != 1 {
		t.Errorf("world %d: the rule %s has other than one field (%v)", seed, data, err)
	}
	for name := range names {
		fields[name]++
	}
	if got, want := wording.Reason(read), wording.Reason(r); got != want {
		t.Errorf("world %d: %s\nis worded as\n%s\nand after a way through JSON as\n%s", seed, data, want, got)
	}
}

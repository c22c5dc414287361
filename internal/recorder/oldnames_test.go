package recorder

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Decisions of recordings that were made before 0.1.0 have other names for their type and for amounts of money.
func TestOldNamesAreRead(t *testing.T) {
	const old = `{"id": "d-1", "kind": "drifted", "cost": 0.5, "saving": 0.2,
		"removes": [{"name": "a", "price": 0.7}], "launches": [{"zone": "z1", "price": 0.5}],
		"alternatives": [{"what": "x", "price": 0.5, "saving": 0.2}], "rule": {"scores": [{"nodePool": "general", "saved": 0.2, "poolCost": 3}]}}`
	const today = `{"id": "d-1", "type": "drifted", "hourlyCost": 0.5, "hourlySavings": 0.2, "removes": [{"name": "a", "hourlyCost": 0.7}],
		"launches": [{"zone": "z1", "hourlyCost": 0.5}], "alternatives": [{"what": "x", "hourlyCost": 0.5, "hourlySavings": 0.2}],
		"rule": {"scores": [{"nodePool": "general", "hourlySavings": 0.2, "poolHourlyCost": 3}]}}`
	var was, is Decision
	for text, d := range map[string]*Decision{old: &was, today: &is} {
		if err := json.Unmarshal([]byte(text), d); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(is, was); diff != "" {
		t.Errorf("decoded from today's names -, from old names +:\n%s", diff)
	}
	if is.Kind != "drifted" || is.HourlyCost != 0.5 || is.HourlySavings != 0.2 ||
		is.Removes[0].HourlyCost != 0.7 || is.Launches[0].HourlyCost != 0.5 ||
		is.Alternatives[0].HourlySavings != 0.2 || is.Rule.Scores[0].PoolHourlyCost != 3 || is.Rule.Scores[0].NodePool != "general" {
		t.Errorf("decoded %+v", is)
	}
}

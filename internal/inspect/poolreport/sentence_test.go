package poolreport

import "testing"

func TestReasonsWithinASentence(t *testing.T) {
	for text, want := range map[string]string{
		"It takes in pods of nodes that are terminated":  "it takes in pods of nodes that are terminated",
		"A pod of it is protected":                       "a pod of it is protected",
		"PodDisruptionBudget shop/web allows none to go": "PodDisruptionBudget shop/web allows none to go",
		"shop/web is protected":                          "shop/web is protected",
		"":                                               "",
	} {
		if got := withinSentence(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

package podreport

// Change is one or more edits, planned together, with which the pod gets a node.
type Change struct {
	// Summary is the change in words, with the object and the field.
	Summary string `json:"summary"`
	Edits   []Edit `json:"edits"`
	// Node states where the pod goes with it.
	Node *Place `json:"node"`
}

// edit is an Edit that can be planned. Its apply reports whether it suits the trial.
type edit struct {
	Edit
	apply func(t *trial) bool
}

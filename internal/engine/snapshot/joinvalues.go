package snapshot

// JoinValues are the values of the labels that nodes get while they join, where all nodes that have the label have the same.
//
// Cost: nodes times such labels.
func (s *Snapshot) JoinValues() map[string]string {
	out := map[string]string{}
	for _, key := range s.Labels.SetOnJoin {
		var values []string
		for i := range s.Nodes {
			if v, has := s.Nodes[i].Labels[key]; has && (len(values) == 0 || values[0] != v) {
				values = append(values, v)
			}
		}
		if len(values) == 1 {
			out[key] = values[0]
		}
	}
	return out
}

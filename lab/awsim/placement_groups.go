package awsim

// AddPlacementGroup creates a placement group in the account, and returns its ID.
func (s *Sim) AddPlacementGroup(g PlacementGroup) (string, error) { return s.ec2.AddPlacementGroup(g) }

// DeletePlacementGroup begins the deletion of a placement group, which takes a moment.
func (s *Sim) DeletePlacementGroup(name string) error { return s.ec2.DeletePlacementGroup(name) }

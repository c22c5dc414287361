package schedule

// firstOpenLevel is the first relaxation level that a new node could satisfy, as far as is known; -1 if there is none.
func (sv *solver) firstOpenLevel(c *class) int {
	last := len(c.attempts) - 1
	for i := range c.attempts {
		if !c.attempts[i].noNewBin && (i == last || c.LaunchableAt(c.Levels()[i], sv.pools)) {
			return i
		}
	}
	return -1
}

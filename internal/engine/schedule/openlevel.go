package schedule

// firstOpenLevel is the first relaxation level that a new node could satisfy, as far as is known; -1 if there is none.
func (r *run) firstOpenLevel(c *class) int {
	last := len(c.attempts) - 1
	for i := r.leastLevel(c); i <= last; i++ {
		if !c.attempts[i].noNewBin && (i == last || c.LaunchableAt(c.Levels()[i], r.pools)) {
			return i
		}
	}
	return -1
}

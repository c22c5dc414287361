package docs

import "maps"

// Files are all derived files, by their path from the root of the repository.
func Files() (map[string]string, error) {
	out, err := referencePages()
	if err != nil {
		return nil, err
	}
	policy, err := Policy()
	if err != nil {
		return nil, err
	}
	beyond, err := ModulePolicy()
	if err != nil {
		return nil, err
	}
	maps.Copy(out, pictures())
	maps.Copy(out, map[string]string{PolicyTemplate: policy, ModulePolicyTemplate: beyond, "docs/settings.md": settingsPage()})
	return out, nil
}

// generated is the first line of a derived page.
const generated = "<!-- Made by \"make generate\". Change the code that it describes. -->\n"

package v1

import "strings"

// aliasFamilies are the image families that an alias stands for, by what is before its @.
var aliasFamilies = map[string]string{
	"al2":          AMIFamilyAL2,
	"al2023":       AMIFamilyAL2023,
	"bottlerocket": AMIFamilyBottlerocket,
	"windows2019":  AMIFamilyWindows2019,
	"windows2022":  AMIFamilyWindows2022,
	"windows2025":  AMIFamilyWindows2025,
}

// ImageFamily is the image family of a class: the one it names, else the alias's, else Custom.
func (c *EC2NodeClass) ImageFamily() string {
	if c.Spec.AMIFamily != "" {
		return c.Spec.AMIFamily
	}
	for _, term := range c.Spec.AMISelectorTerms {
		name, _, _ := strings.Cut(term.Alias, "@")
		if family, ok := aliasFamilies[name]; ok {
			return family
		}
	}
	return AMIFamilyCustom
}

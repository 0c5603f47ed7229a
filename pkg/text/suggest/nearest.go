// Package suggest finds the known word that a mistyped word probably stands for.
package suggest

// longest bounds the work on hostile input. No key or setting is longer.
const longest = 64

// To returns the known word with the fewest letters to insert, delete or replace (Levenshtein's
// distance). It returns "" if even that one shares less than half of its letters with word.
func To(word string, known []string) string {
	if len(word) > longest {
		return ""
	}
	best, found := longest, ""
	for _, candidate := range known {
		if d := distance(word, candidate); d < best && d <= max(1, len(candidate)/2) {
			best, found = d, candidate
		}
	}
	return found
}

func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance from a[:i] to b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

//! How is it drawn? Panels side by side as in the paper: lines over sizes, delays or ratios, or bars in groups. SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// Size of a panel, pixels.
const PANEL: (u32, u32) = (520, 340);
const COLOURS: [RGBColor; 6] = [
    RGBColor(120, 120, 120),
    RGBColor(130, 170, 230),
    RGBColor(31, 78, 156),
    RGBColor(217, 130, 43),
    RGBColor(63, 143, 91),
    RGBColor(170, 60, 110),
];

#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Panels beside each other.
    pub columns: usize,
    pub panels: Vec<Panel>,
}

#[derive(Debug, Clone)]
pub struct Panel {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// What stands below the axis at 0, 1, 2 …; none for an axis of numbers.
    pub categories: Vec<String>,
    pub series: Vec<Series>,
    pub shape: Shape,
}

#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    /// x is the place of a category where there are any. Points that are no number are left out.
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Lines,
    /// Lines that are no measurement are drawn without marks from this series on.
    LinesWithGuides(usize),
    Bars,
}

impl Chart {
    /// Writes the chart.
    ///
    /// Errors: the file cannot be written, or there is nothing to draw.
    pub fn draw(&self, path: &Path) -> Result<(), String> {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        let area = SVGBackend::new(path, (PANEL.0 * columns as u32, PANEL.1 * rows as u32)).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        for (panel, place) in self.panels.iter().zip(area.split_evenly((rows, columns))) {
            panel.draw(&place).map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))
    }
}

impl Panel {
    fn draw(&self, area: &DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn std::error::Error>> {
        let points: Vec<(f64, f64)> = self.series.iter().flat_map(|series| finite(&series.points)).collect();
        let (x_range, y_range) = self.ranges(&points);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(55)
            .build_cartesian_2d(x_range, y_range.clone())?;
        let label = |x: &f64| match self.categories.get(x.round().max(0.0) as usize) {
            Some(label) if (x - x.round()).abs() < 1e-6 => label.clone(),
            Some(_) => String::new(),
            None if self.categories.is_empty() => format!("{x}"),
            None => String::new(),
        };
        let count = if self.categories.is_empty() { 8 } else { self.categories.len() + 2 };
        chart
            .configure_mesh()
            .x_labels(count)
            .x_label_formatter(&label)
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .disable_x_mesh()
            .draw()?;
        let width = 0.8 / self.series.len().max(1) as f64;
        for (at, series) in self.series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let points = finite(&series.points);
            let drawn = match self.shape {
                Shape::Bars => chart.draw_series(points.map(|(x, y)| {
                    let left = x - 0.4 + width * at as f64;
                    Rectangle::new([(left, 0.0), (left + width * 0.92, y)], colour.filled())
                }))?,
                Shape::LinesWithGuides(first) if at >= first => {
                    chart.draw_series(DashedLineSeries::new(points, 4, 4, BLACK.mix(0.5).stroke_width(1)))?
                }
                _ => {
                    let points: Vec<_> = points.collect();
                    chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                }
            };
            drawn
                .label(&series.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.2)).draw()?;
        Ok(())
    }

    /// The axes: all points, zero in height, and a little room.
    fn ranges(&self, points: &[(f64, f64)]) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
        let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(0.0, f64::max);
        let least_y = points.iter().map(|point| point.1).fold(0.0, f64::min);
        let most_y = most(|point| point.1);
        let room = ((most_y - least_y) * 0.08).max(1e-9);
        let low = if least_y < 0.0 { least_y - room } else { 0.0 };
        let x = if self.categories.is_empty() {
            0.0..most(|point| point.0).max(1e-9) * 1.04
        } else {
            -0.5..self.categories.len() as f64 - 0.5
        };
        (x, low..most_y + room)
    }
}

fn finite(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + Clone {
    points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(shape: Shape, categories: &[&str], points: &[(f64, f64)]) -> Panel {
        Panel {
            title: "Overlap".into(),
            x_label: "bytes".into(),
            y_label: "%".into(),
            categories: categories.iter().map(|&name| name.to_owned()).collect(),
            series: vec![Series { name: "adaptive".into(), points: points.to_vec() }],
            shape,
        }
    }

    #[test]
    fn charts_are_drawn_with_their_words_even_without_points() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (1.0, -3.0)];
        let panels = vec![
            panel(Shape::Lines, &["4 KiB", "64 KiB"], &points),
            panel(Shape::Bars, &["CG.B", "BT.A"], &points),
            panel(Shape::LinesWithGuides(0), &[], &points),
            panel(Shape::Lines, &[], &[]),
        ];
        let path = std::env::temp_dir().join(format!("whimbrel-chart-{}.svg", std::process::id()));
        Chart { columns: 2, panels }.draw(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for word in ["Overlap", "64 KiB", "CG.B", "adaptive", "</svg>"] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn axes_hold_all_points_and_zero() {
        let (x, y) = panel(Shape::Lines, &["a", "b"], &[]).ranges(&[(0.0, 10.0), (1.0, -2.0)]);
        assert_eq!(x, -0.5..1.5);
        assert!(y.start < -2.0 && y.end > 10.0);
        let (x, y) = panel(Shape::Lines, &[], &[]).ranges(&[(100.0, 10.0)]);
        assert!(x.contains(&100.0) && y.start == 0.0);
    }
}
